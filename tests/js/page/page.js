/** A simple page with the client; it records callbacks for the test. */

import { Windlass } from "/js/windlass.js";

const [bar, label] = [document.querySelector("progress"), document.querySelector("output")];
const logged = [];
const log = { debug() {}, warn: (text) => void logged.push(text), error: console.error };
const params = new URLSearchParams(location.search);
const job = params.get("job");
const url = params.get("api") ?? undefined; // default: the page's origin
const client = new Windlass({ url, log, backoff: { first: 50, attempts: 100, cap: 200 } });
const listeners = [];
const shown = []; // every value of the bar

function listen() {
  const recorded = { events: [], percents: [], states: [], connections: [], end: null, error: null };
  listeners.push(recorded);
  client.follow(job, {
    onEvent: ({ id, type, data }) => void recorded.events.push({ id, type, data }),
    onProgress: (percent) => void recorded.percents.push(percent),
    onState: (state) => void recorded.states.push(state),
    onConnection: ({ open }) => void recorded.connections.push(open),
    onEnd: (event) => void (recorded.end = event.type),
    onError: (error) => void (recorded.error = error.message),
  });
}

for (let n = 0; n < 5; n += 1) listen();
client.follow(job, {
  onProgress: (percent) => {
    bar.value = percent;
    shown.push(percent);
  },
  onState: (state) => (label.textContent = state),
});

window.page = { client, listeners, job, listen, logged, shown };
