/** What a job carries: arguments, result, headers, what it made, and itself as a command. */

/** @import { Job } from "../client/windlass.js" */
/** @import { Given } from "../view/dom.js" */
/** @import { JobModel } from "./model.js" */

import { size } from "../format.js";
import { h } from "../view/dom.js";
import { copyButton, ended, json } from "../view/parts.js";
import { asCurl, asEnqueue, enqueueable } from "./copy-as.js";
import { tabs } from "./tabs.js";

const SEALED = "It was written with a key that this server does not have: it cannot be shown.";

/** @param {unknown} value @param {string} what */
const copied = (value, what) =>
  h(
    "div",
    { class: value !== null && typeof value === "object" ? "copied" : "copied scalar" },
    json(value),
    copyButton(() => JSON.stringify(value, null, 2) ?? "null", what),
  );

/**
 * @param {JobModel} model
 * @param {Job} job
 * @param {string} chosen
 * @param {(name: string) => void} choose
 */
export function dataView(model, job, chosen, choose) {
  const made = model.artifacts;
  /** @type {Record<string, { name: string, look: () => Given } | null>} */
  const every = {
    arguments: { name: "Arguments", look: () => argumentsView(job) },
    result: { name: "Result", look: () => resultView(job) },
    headers: { name: "Headers", look: () => copied(job.headers, "the headers") },
    artifacts: made.length > 0 ? { name: "Artifacts", look: () => artifacts(made) } : null,
    again: job.sealed ? null : { name: "Copy as", look: () => commands(job) },
  };
  return h(
    "section",
    { class: "card data", key: "data", "aria-label": "What the job carries" },
    tabs("data", every, chosen, choose),
  );
}

/** @param {Job} job */
const argumentsView = (job) =>
  job.sealed && job.arguments === null
    ? h("p", { class: "soft" }, SEALED)
    : copied(job.arguments, "the arguments");

/** @param {Job} job */
function resultView(job) {
  if (job.state === "succeeded") {
    return job.sealed && job.result === null
      ? h("p", { class: "soft" }, SEALED)
      : copied(job.result, "the result");
  }
  return h(
    "p",
    { class: "soft" },
    ended(job.state)
      ? `It has none: it ${job.state === "failed" ? "failed" : "was canceled"}.`
      : "It comes when the job has succeeded.",
  );
}

/** @param {Record<string, any>[]} made */
const artifacts = (made) =>
  h(
    "ul",
    { class: "artifacts" },
    made.map(({ name, uri, size: bytes }) =>
      h(
        "li",
        null,
        h("strong", null, String(name ?? "")),
        /^https?:\/\//i.test(String(uri))
          ? h("a", { href: String(uri), target: "_blank", rel: "noreferrer" }, String(uri))
          : h("span", { class: "mono" }, String(uri ?? "")),
        typeof bytes === "number" && h("span", { class: "soft small" }, size(bytes)),
      ),
    ),
  );

/** @param {Job} job */
const commands = (job) => [
  enqueueable(job) && command("In a shell", asEnqueue(job), "the windlass command"),
  command("With curl", asCurl(job), "the curl command"),
];

/** @param {string} name @param {string} text @param {string} what */
const command = (name, text, what) =>
  h(
    "div",
    { class: "command" },
    h(
      "header",
      null,
      h("h3", null, name),
      copyButton(() => text, what),
    ),
    h("pre", { class: "code", tabindex: 0 }, text),
  );
