/** Icons: stroked paths on a 24 × 24 grid. Each has a text or an accessible label next to it. */

import { h } from "./virtual-dom.js";

const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6V4h-6zM4 20h6v-3H4z",
  jobs: "M4 6h16M4 12h16M4 18h10",
  failures: "M12 4 2.5 20h19zM12 10v4M12 17v.01",
  flows:
    "M5 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM5 8v8M5 22a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM5 12h8a4 4 0 0 0 4-4M17 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6z",
  schedules: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3.5 2",
  workers: "M4 5h16v6H4zM4 13h16v6H4zM8 8v.01M8 16v.01",
  queues: "M4 7h16v4H4zM4 14h11v4H4z",
  enqueue: "M12 5v14M5 12h14",
  audit: "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3",
  keys: "M14.5 13.5a5 5 0 1 0-4-4L3 17v4h4v-3h3v-3zM17 8v.01",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M4.9 4.9l1.4 1.4M17.7 17.7l1.4 1.4M2 12h2M20 12h2M4.9 19.1l1.4-1.4M17.7 6.3l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z",
  system: "M4 5h16v11H4zM9 20h6M12 16v4",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  check: "M5 12.5l4.5 4.5L19 7.5",
  retry: "M20 11a8 8 0 1 0-2.3 6.3M20 5v6h-6",
  resume: "M7 5l12 7-12 7z",
  pause: "M8 5v14M16 5v14",
  cancel: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM8.5 8.5l7 7M15.5 8.5l-7 7",
  delete: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13",
  search: "M10.5 17a6.5 6.5 0 1 0 0-13 6.5 6.5 0 0 0 0 13zM15.5 15.5 21 21",
  left: "M15 5l-7 7 7 7",
  right: "M9 5l7 7-7 7",
  down: "M5 9l7 7 7-7",
  up: "M5 15l7-7 7 7",
  external: "M14 4h6v6M20 4l-9 9M18 14v6H4V6h6",
  signOut: "M14 4h5v16h-5M4 12h11M11 8l4 4-4 4",
  link: "M10 14a4 4 0 0 0 6 .5l3-3a4 4 0 0 0-5.7-5.7l-1 1M14 10a4 4 0 0 0-6-.5l-3 3a4 4 0 0 0 5.7 5.7l1-1",
  filter: "M4 5h16l-6 8v6l-4-2v-4z",
  inbox: "M4 13l3-8h10l3 8v6H4zM4 13h5l1.5 2.5h3L15 13h5",
};

/** @typedef {keyof typeof PATHS} Icon */

/** @param {Icon} name */
export const icon = (name) =>
  h(
    "svg",
    { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" },
    h("path", { d: PATHS[name] }),
  );
