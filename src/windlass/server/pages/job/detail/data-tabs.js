/** Arguments, result, headers and artifacts of a job, and commands to enqueue it again. */

/** @import { Job } from "../../client/windlass.js" */
/** @import { Renderable } from "../../view/virtual-dom.js" */
/** @import { JobModel } from "../model.js" */

import { byteSize } from "../../format.js";
import { h } from "../../view/virtual-dom.js";
import { copyButton } from "../../view/components.js";
import { ended } from "../../job-state.js";
import { jsonView } from "../../view/json-view.js";
import { curlCommand, cliCommand, hasNamedArguments } from "./enqueue-commands.js";
import { tabs } from "../../view/tabs.js";

const SEALED = "Encrypted with a key that this server does not have.";

/** @param {unknown} value @param {string} what */
const copyableJson = (value, what) =>
  h(
    "div",
    { class: value !== null && typeof value === "object" ? "copyable" : "copyable scalar" },
    jsonView(value),
    copyButton(() => JSON.stringify(value, null, 2) ?? "null", what),
  );

/**
 * @param {JobModel} model
 * @param {Job} job
 * @param {string} chosen
 * @param {(name: string) => void} choose
 */
export function dataTabs(model, job, chosen, choose) {
  const items = model.artifacts;
  /** @type {Record<string, { name: string, render: () => Renderable } | null>} */
  const every = {
    arguments: { name: "Arguments", render: () => argumentsView(job) },
    result: { name: "Result", render: () => resultView(job) },
    headers: { name: "Headers", render: () => copyableJson(job.headers, "the headers") },
    artifacts: items.length > 0 ? { name: "Artifacts", render: () => artifacts(items) } : null,
    command: job.sealed ? null : { name: "Copy as", render: () => commands(job) },
  };
  return h(
    "section",
    { class: "card data", key: "data", "aria-label": "Job data" },
    tabs("data", every, chosen, choose),
  );
}

/** @param {Job} job */
const argumentsView = (job) =>
  job.sealed && job.arguments === null
    ? h("p", { class: "soft" }, SEALED)
    : copyableJson(job.arguments, "the arguments");

/** @param {Job} job */
function resultView(job) {
  if (job.state === "succeeded") {
    return job.sealed && job.result === null
      ? h("p", { class: "soft" }, SEALED)
      : copyableJson(job.result, "the result");
  }
  return h(
    "p",
    { class: "soft" },
    ended(job.state)
      ? `No result: the job ${job.state === "failed" ? "failed" : "was canceled"}.`
      : "No result yet.",
  );
}

/** @param {Record<string, any>[]} items */
const artifacts = (items) =>
  h(
    "ul",
    { class: "artifacts" },
    items.map(({ name, uri, size: bytes }) =>
      h(
        "li",
        null,
        h("strong", null, String(name ?? "")),
        /^https?:\/\//i.test(String(uri))
          ? h("a", { href: String(uri), target: "_blank", rel: "noreferrer" }, String(uri))
          : h("span", { class: "mono" }, String(uri ?? "")),
        typeof bytes === "number" && h("span", { class: "soft small" }, byteSize(bytes)),
      ),
    ),
  );

/** @param {Job} job */
const commands = (job) => [
  hasNamedArguments(job) && command("CLI", cliCommand(job), "the windlass command"),
  command("curl", curlCommand(job), "the curl command"),
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
