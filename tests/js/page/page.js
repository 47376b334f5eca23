/** A page as anybody would write it; what it hears, it keeps for the test that looks at it. */

import { Windlass } from "/js/windlass.js";

const [bar, label] = [document.querySelector("progress"), document.querySelector("output")];
const logged = [];
const log = { debug() {}, warn: (text) => void logged.push(text), error: console.error };
const asked = new URLSearchParams(location.search);
const job = asked.get("job");
const url = asked.get("api") ?? undefined; // the page's own server, or a path on it
const client = new Windlass({ url, log, backoff: { first: 50, attempts: 100, cap: 200 } });
const heard = [];
const shown = []; // every value that the bar ever had

function listen() {
  const mine = { events: [], percents: [], states: [], connections: [], end: null, error: null };
  heard.push(mine);
  client.follow(job, {
    onEvent: ({ id, type, data }) => void mine.events.push({ id, type, data }),
    onProgress: (percent) => void mine.percents.push(percent),
    onState: (state) => void mine.states.push(state),
    onConnection: ({ open }) => void mine.connections.push(open),
    onEnd: (event) => void (mine.end = event.type),
    onError: (error) => void (mine.error = error.message),
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

window.page = { client, heard, job, listen, logged, shown };
