/** Buttons of the actions that the job's state and the user's permissions allow. */

/** @import { Job } from "../client/windlass.js" */
/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { JobModel } from "./model.js" */

import { api } from "../api.js";
import { navigate, pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { confirm, openDialog } from "../view/dialog.js";
import { h } from "../view/virtual-dom.js";
import { button, jobLink } from "../view/components.js";
import { CAN, ended } from "../job-state.js";
import { toast } from "../view/toast.js";

export class ActionButtons {
  /** Name of the running action. */
  #busy = "";

  /** @param {JobModel} model */
  constructor(model) {
    this.model = model;
  }

  /** @param {Job} job @returns {Renderable} */
  render(job) {
    const produce = may("produce");
    const resumable = ended(job.state) && job.canResume && job.retriedAs === null;
    return h(
      "div",
      { class: "job-actions" },
      produce && CAN.submit(job) && this.#button("Submit", "resume", () => this.submit(), "main"),
      produce &&
        resumable &&
        this.#button("Resume", "resume", () => this.#runAgain("Resume", "resume"), "main"),
      produce &&
        CAN.retry(job) &&
        this.#button(
          "Retry",
          "retry",
          () => this.#runAgain("Retry", "retry"),
          resumable ? undefined : "main",
        ),
      produce &&
        CAN.cancel(job) &&
        this.#button("Cancel", "cancel", () => this.#cancel(), "danger"),
      may("delete") &&
        CAN.delete(job) &&
        this.#button("Delete", "delete", () => this.#delete(), "danger"),
    );
  }

  /**
   * @param {string} name
   * @param {import("../view/icons.js").Icon} icon
   * @param {() => unknown} click
   * @param {"main" | "danger"} [kind]
   */
  #button(name, icon, click, kind) {
    const text = this.#busy === name ? `${name} …` : name;
    return button(text, click, {
      icon,
      kind,
      disabled: this.#busy !== "",
      label: `${name} this job`,
    });
  }

  /**
   * @template T
   * @param {string} name
   * @param {() => Promise<T>} call
   * @param {(answer: T) => void} then
   */
  async #run(name, call, then) {
    if (this.#busy !== "") return; // ignores a double click
    this.#busy = name;
    this.model.view.changed();
    try {
      then(await call());
    } catch (error) {
      const { message, advice } = /** @type {import("../client/windlass.js").WindlassError} */ (
        error
      );
      toast([message, advice && h("div", { class: "soft" }, advice)], "failed");
    } finally {
      this.#busy = "";
      this.model.refresh();
      this.model.view.changed();
    }
  }

  submit() {
    return this.#run(
      "Submit",
      () => api.submit(this.model.id),
      () => toast("Queued."),
    );
  }

  /** @param {"Retry" | "Resume"} name @param {"retry" | "resume"} verb */
  #runAgain(name, verb) {
    return this.#run(
      name,
      () => api[verb](this.model.id),
      (job) => {
        toast([name === "Retry" ? "Retried as " : "Resumed as ", jobLink(job.id), "."]);
        this.#navigate(`jobs/${encodeURIComponent(job.id)}`);
      },
    );
  }

  async #cancel() {
    let reason = "";
    const confirmed = await openDialog({
      title: "Cancel this job?",
      action: "Cancel job",
      danger: true,
      content: () =>
        h(
          "div",
          { class: "field" },
          h("label", { for: "reason" }, "Reason (optional)"),
          h("input", {
            id: "reason",
            class: "input",
            maxlength: 500,
            autocomplete: "off",
            oninput: (/** @type {any} */ event) => (reason = event.target.value),
          }),
        ),
    });
    if (!confirmed) return;
    const options = reason.trim() ? { reason: reason.trim() } : {};
    await this.#run(
      "Cancel",
      () => api.cancel(this.model.id, options),
      ({ status }) =>
        toast(
          status === "requested"
            ? "Cancel requested."
            : status === "canceled"
              ? "Job canceled."
              : `The job has already ${status}.`,
        ),
    );
  }

  async #delete() {
    const text = "Permanently deletes its arguments, result and log.";
    if (!(await confirm({ title: "Delete this job?", text, action: "Delete job", danger: true })))
      return;
    await this.#run(
      "Delete",
      () => api.delete(this.model.id),
      () => {
        toast("Job deleted.");
        this.#navigate("jobs");
      },
    );
  }

  /** Navigate, unless the user has left the page. @param {string} path */
  #navigate(path) {
    if (!this.model.view.closed) navigate(pageUrl(path));
  }
}
