/** A tab that records callbacks for the test. */

import { live } from "/assets/test/live/live.js";

const page = { live, jobs: {}, lists: {}, loaded: 0, answers: {}, connections: [] };

page.follow = (job, after = 0) => {
  const recorded = { seqs: [], percents: [], states: [], end: null, error: null };
  page.jobs[job] = recorded;
  recorded.stop = live.follow(job, {
    after,
    onEvent: (event) => void recorded.seqs.push(event.seq),
    onProgress: (percent) => void recorded.percents.push(percent),
    onState: (state) => void recorded.states.push(state),
    onEnd: (event) => void (recorded.end = event?.type ?? "before"),
    onError: (error) => void (recorded.error = error.status),
  });
};

page.list = (filter) => {
  const notify = ({ id, state, listed }) => void (page.lists[id] = [state, listed]);
  page.unlist = live.list(filter, notify, { onLoaded: () => void (page.loaded += 1) });
};

page.poll = (path, seconds) => {
  page.answers[path] = [];
  const keep = (answer, error) => void page.answers[path].push(error?.status ?? answer);
  page.unpoll = live.poll(path, seconds, keep);
};

live.connection(({ open, error }) => {
  page.connections.push(open ? "open" : (error?.status ?? null));
});

page.session = async (method, key) => {
  const headers = { "Content-Type": "application/json" };
  const body = key && JSON.stringify({ key });
  return (await fetch("/api/session", { method, headers, body })).status;
};

window.page = page;
