/** Scripted server: the next item of `responses` is the response to each request. */

import { seqOf } from "../../src/streaming/job-event.js";
import { Windlass } from "../../windlass.js";
import { VirtualClock } from "./clock.js";

export const JOB = "01890a5d-ac96-774b-bcce-b302099a8057";

/** Event stream that a test writes to. */
export class TestStream {
  aborted = false;

  constructor(signal) {
    this.body = new ReadableStream({ start: (controller) => void (this.controller = controller) });
    signal.addEventListener("abort", () => {
      this.aborted = true;
      try {
        this.controller.error(signal.reason);
      } catch {} // already closed
    });
  }

  send(...texts) {
    for (const text of texts) this.controller.enqueue(new TextEncoder().encode(text));
  }

  end = () => this.controller.close();
  fail = () => this.controller.error(new TypeError("terminated"));
}

export class ScriptedServer {
  /** @type {{ method: string, url: URL, headers: any, body: any, init: any }[]} */
  calls = [];
  /** @type {((call: any) => Response | Promise<Response>)[]} */
  responses = [];
  /** @type {((call: any) => Response) | null} */
  always = null;
  /** @type {TestStream[]} */
  streams = [];

  fetch = async (input, init) => {
    const body = init.body ? JSON.parse(init.body) : null;
    const call = { method: init.method, url: new URL(input), headers: init.headers, body, init };
    this.calls.push(call);
    init.signal?.throwIfAborted();
    const answer = this.always ?? this.responses.shift() ?? (() => this.stream(init.signal));
    return answer(call);
  };

  stream(signal) {
    const stream = new TestStream(signal);
    this.streams.push(stream);
    return new Response(stream.body, { headers: { "content-type": "text/event-stream" } });
  }

  get lastStream() {
    return this.streams.at(-1);
  }

  /** The lastEventId of each request. */
  get cursors() {
    return this.calls.map(({ url }) => url.searchParams.get("lastEventId"));
  }

  json(value, status = 200) {
    const type = status < 400 ? "application/json" : "application/problem+json";
    this.responses.push(() => new Response(JSON.stringify(value), responseInit(status, type)));
  }

  problem(status, more = {}, headers = {}) {
    const base = { type: "urn:x", title: "No", status, detail: "not so", code: "x", advice: "y" };
    const init = responseInit(status, "application/problem+json", headers);
    this.responses.push(() => new Response(JSON.stringify({ ...base, ...more }), init));
  }

  /** Behave like a server with a running job of `count` events. */
  serveRunningJob(count) {
    this.always = (call) => {
      const after = seqOf(call.url.searchParams.get("lastEventId") ?? 0);
      if (after > count) return new Response("{}", responseInit(422, "application/problem+json"));
      if (call.headers.Accept === "text/event-stream") return this.stream(call.init.signal);
      const events = Array.from({ length: count - after }, (_, place) => view(after + place + 1));
      const page = { events, cursor: events.at(-1)?.id ?? null, ended: false };
      return new Response(JSON.stringify(page), responseInit(200, "application/json"));
    };
  }

  noContent() {
    this.responses.push(() => new Response(null, { status: 204 }));
  }

  unreachable() {
    this.responses.push(() => Promise.reject(new TypeError("fetch failed")));
  }

  /** Never respond; reject when the request is aborted. */
  neverRespond() {
    this.responses.push(
      ({ init }) =>
        new Promise((_, reject) =>
          init.signal.addEventListener("abort", () => reject(init.signal.reason)),
        ),
    );
  }
}

const responseInit = (status, type, headers = {}) => ({
  status,
  headers: { "content-type": type, ...headers },
});

/** Return a client, its scripted server, their clock, and the log messages. */
export function setUp(options = {}) {
  const [server, clock, logged] = [new ScriptedServer(), new VirtualClock(), []];
  const write = (level) => (first) => void logged.push(`${level}: ${first}`);
  const log = { debug() {}, warn: write("warn"), error: write("error") };
  const { fetch } = server;
  const client = new Windlass({ url: "http://test", fetch, log, timers: clock, ...options });
  return { client, server, clock, logged };
}

/** An event on the stream of its job. */
export const logEvent = (seq, type = "log", data = {}) =>
  `id: ${1000 + seq}-${seq}\nevent: ${type}\ndata: ${JSON.stringify(data)}\n\n`;

export const status = (seq, state, percent = 0) =>
  logEvent(seq, "job-status", { status: state, percent });

export const progress = (seq, percent) => logEvent(seq, "step-progress", { progressPct: percent });

export const done = (seq) => logEvent(seq, "job-completed", { status: "succeeded", percent: 100 });

/** The JSON form of an event. */
export const view = (seq, type = "log", data = {}, jobId = JOB) => ({
  id: `${1000 + seq}-${seq}`, seq, at: "2026-01-31T12:00:00Z", type, jobId, data,
});

/** An event on a stream of several jobs. */
export const sharedEvent = (jobId, seq, type = "log", data = {}) =>
  `event: ${type}\ndata: ${JSON.stringify(view(seq, type, data, jobId))}\n\n`;

/** Callbacks that record their calls. */
export function recorder() {
  const recorded = { seqs: [], percents: [], states: [], ends: [], errors: [], connections: [] };
  return {
    ...recorded,
    onEvent: (event) => void recorded.seqs.push(event.seq),
    onProgress: (percent) => void recorded.percents.push(percent),
    onState: (state) => void recorded.states.push(state),
    onEnd: (event) => void recorded.ends.push(event?.type ?? null),
    onError: (error) => void recorded.errors.push(error),
    onConnection: ({ open, wait }) => void recorded.connections.push(open ? "open" : wait),
  };
}
