/** Replay controls: play, position, speed. */

/** @import { Replay } from "./replay.js" */

import { number, preciseTime } from "../../format.js";
import { h } from "../../view/virtual-dom.js";
import { button } from "../../view/components.js";
import { SPEEDS } from "./replay.js";

const NAMES = { 1: "1×", 10: "10×", all: "instant" };

/** @param {Replay} replay */
export function replayBar(replay) {
  const { first, last, playing } = replay;
  const at = replay.at ?? last;
  const event = replay.model.events[at - first - 1];
  const position =
    event === undefined
      ? "no events yet"
      : `event ${number(event.seq)} · ${preciseTime(event.at.getTime())}`;
  return h(
    "div",
    { class: "replay", role: "group", "aria-label": "Replay" },
    button(playing ? "Pause" : "Replay", () => (playing ? replay.pause() : replay.play()), {
      icon: playing ? "pause" : "resume",
      slim: true,
      disabled: last === first,
      label: playing ? "Pause replay" : "Replay log",
    }),
    h("input", {
      type: "range",
      "aria-label": "Replay position",
      "aria-valuetext": position,
      min: first + Math.min(1, last - first),
      max: last,
      value: String(at),
      disabled: last === first,
      oninput: (/** @type {any} */ change) => {
        if (replay.playing) replay.pause();
        replay.seek(Number(change.target.value));
      },
    }),
    h("span", { class: "position soft small" }, position),
    h(
      "select",
      {
        class: "input",
        "aria-label": "Replay speed",
        value: replay.speed,
        onchange: (/** @type {any} */ change) => (replay.speed = change.target.value),
      },
      SPEEDS.map((speed) => h("option", { value: speed }, NAMES[speed])),
    ),
    button("Live", () => replay.live(), { slim: true, disabled: !replay.on, pressed: !replay.on }),
  );
}
