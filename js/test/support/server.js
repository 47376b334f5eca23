/** A server that does what a test says: each request is answered by the next of its answers. */

import { seqOf } from "../../src/event.js";
import { Windlass } from "../../windlass.js";
import { VirtualClock } from "./clock.js";

export const JOB = "01890a5d-ac96-774b-bcce-b302099a8057";

/** A stream that a test writes to. */
export class Line {
  aborted = false;

  constructor(signal) {
    this.body = new ReadableStream({ start: (controller) => void (this.controller = controller) });
    signal.addEventListener("abort", () => {
      this.aborted = true;
      try {
        this.controller.error(signal.reason);
      } catch {} // it has ended
    });
  }

  send(...texts) {
    for (const text of texts) this.controller.enqueue(new TextEncoder().encode(text));
  }

  end = () => this.controller.close();
  tear = () => this.controller.error(new TypeError("terminated"));
}

export class Server {
  /** @type {{ method: string, url: URL, headers: any, body: any, init: any }[]} */
  calls = [];
  /** @type {((call: any) => Response | Promise<Response>)[]} */
  answers = [];
  /** @type {((call: any) => Response) | null} */
  always = null;
  /** @type {Line[]} */
  lines = [];

  fetch = async (input, init) => {
    const body = init.body ? JSON.parse(init.body) : null;
    const call = { method: init.method, url: new URL(input), headers: init.headers, body, init };
    this.calls.push(call);
    init.signal?.throwIfAborted();
    const answer = this.always ?? this.answers.shift() ?? (() => this.stream(init.signal));
    return answer(call);
  };

  stream(signal) {
    const line = new Line(signal);
    this.lines.push(line);
    return new Response(line.body, { headers: { "content-type": "text/event-stream" } });
  }

  get line() {
    return this.lines.at(-1);
  }

  /** The cursors with which streams were asked for. */
  get cursors() {
    return this.calls.map(({ url }) => url.searchParams.get("lastEventId"));
  }

  json(value, status = 200) {
    const type = status < 400 ? "application/json" : "application/problem+json";
    this.answers.push(() => new Response(JSON.stringify(value), answer(status, type)));
  }

  problem(status, more = {}, headers = {}) {
    const told = { type: "urn:x", title: "No", status, detail: "not so", code: "x", advice: "y" };
    const init = answer(status, "application/problem+json", headers);
    this.answers.push(() => new Response(JSON.stringify({ ...told, ...more }), init));
  }

  /** From now on, behave like a server whose job has so many events, and lives. */
  keep(count) {
    this.always = (call) => {
      const after = seqOf(call.url.searchParams.get("lastEventId") ?? 0);
      if (after > count) return new Response("{}", answer(422, "application/problem+json"));
      if (call.headers.Accept === "text/event-stream") return this.stream(call.init.signal);
      const events = Array.from({ length: count - after }, (_, place) => view(after + place + 1));
      const page = { events, cursor: events.at(-1)?.id ?? null, ended: false };
      return new Response(JSON.stringify(page), answer(200, "application/json"));
    };
  }

  empty() {
    this.answers.push(() => new Response(null, { status: 204 }));
  }

  unreachable() {
    this.answers.push(() => Promise.reject(new TypeError("fetch failed")));
  }

  /** Never answers, but to an abort. */
  silent() {
    this.answers.push(
      ({ init }) =>
        new Promise((_, reject) =>
          init.signal.addEventListener("abort", () => reject(init.signal.reason)),
        ),
    );
  }
}

const answer = (status, type, headers = {}) => ({
  status,
  headers: { "content-type": type, ...headers },
});

/** A client, the server that it speaks to, the clock of both, and what was logged. */
export function setUp(options = {}) {
  const [server, clock, logged] = [new Server(), new VirtualClock(), []];
  const write = (level) => (first) => void logged.push(`${level}: ${first}`);
  const log = { debug() {}, warn: write("warn"), error: write("error") };
  const { fetch } = server;
  const client = new Windlass({ url: "http://test", fetch, log, timers: clock, ...options });
  return { client, server, clock, logged };
}

/** An event as the stream of its job brings it. */
export const said = (seq, type = "log", data = {}) =>
  `id: ${1000 + seq}-${seq}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;

export const status = (seq, state, percent = 0) =>
  said(seq, "job-status", { status: state, percent });

export const progress = (seq, percent) => said(seq, "step-progress", { progressPct: percent });

export const done = (seq) => said(seq, "job-completed", { status: "succeeded", percent: 100 });

/** The same as JSON tells it. */
export const view = (seq, type = "log", data = {}, jobId = JOB) => ({
  id: `${1000 + seq}-${seq}`, seq, at: "2026-01-31T12:00:00Z", type, jobId, data,
});

export const manySaid = (jobId, seq, type = "log", data = {}) =>
  `event: ${type}\ndata: ${JSON.stringify(view(seq, type, data, jobId))}\n\n`;

/** What one who follows hears. */
export function ears() {
  const heard = { seqs: [], percents: [], states: [], ends: [], errors: [], connections: [] };
  return {
    ...heard,
    onEvent: (event) => void heard.seqs.push(event.seq),
    onProgress: (percent) => void heard.percents.push(percent),
    onState: (state) => void heard.states.push(state),
    onEnd: (event) => void heard.ends.push(event?.type ?? null),
    onError: (error) => void heard.errors.push(error),
    onConnection: ({ open, wait }) => void heard.connections.push(open ? "open" : wait),
  };
}
