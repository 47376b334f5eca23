/** What can be done to a job: only what makes sense as it stands, and what one may do. */

/** @import { Job } from "../client/windlass.js" */
/** @import { Given } from "../view/dom.js" */
/** @import { JobModel } from "./model.js" */

import { go, to } from "../router.js";
import { api, may } from "../session.js";
import { ask, confirm } from "../view/dialog.js";
import { h } from "../view/dom.js";
import { CAN, button, ended, jobLink } from "../view/parts.js";
import { toast } from "../view/toast.js";

export class Acts {
  /** The verb that is under way. */
  #busy = "";

  /** @param {JobModel} model */
  constructor(model) {
    this.model = model;
  }

  /** @param {Job} job @returns {Given} */
  look(job) {
    const produce = may("produce");
    const resumable = ended(job.state) && job.canResume && job.retriedAs === null;
    return h(
      "div",
      { class: "acts" },
      produce && CAN.submit(job) && this.#button("Submit", "resume", () => this.submit(), "main"),
      produce &&
        resumable &&
        this.#button("Resume", "resume", () => this.#anew("Resume", "resume"), "main"),
      produce &&
        CAN.retry(job) &&
        this.#button(
          "Retry",
          "retry",
          () => this.#anew("Retry", "retry"),
          resumable ? undefined : "main",
        ),
      produce &&
        CAN.cancel(job) &&
        this.#button("Cancel", "cancel", () => this.#cancel(), "danger"),
      may("remove") &&
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
  async #do(name, call, then) {
    if (this.#busy !== "") return; // whoever clicks twice means it once
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
      this.model.ask();
      this.model.view.changed();
    }
  }

  submit() {
    return this.#do(
      "Submit",
      () => api.submit(this.model.id),
      () => toast("It is in line now."),
    );
  }

  /** @param {"Retry" | "Resume"} name @param {"retry" | "resume"} verb */
  #anew(name, verb) {
    return this.#do(
      name,
      () => api[verb](this.model.id),
      (job) => {
        toast([name === "Retry" ? "Retried as " : "Resumed as ", jobLink(job.id), "."]);
        this.#leave(`jobs/${encodeURIComponent(job.id)}`);
      },
    );
  }

  async #cancel() {
    let reason = "";
    const agreed = await ask({
      title: "Cancel this job?",
      action: "Cancel the job",
      danger: true,
      inside: () =>
        h(
          "div",
          { class: "field" },
          h("label", { for: "reason" }, "Reason (may be left out)"),
          h("input", {
            id: "reason",
            class: "input",
            maxlength: 500,
            autocomplete: "off",
            oninput: (/** @type {any} */ event) => (reason = event.target.value),
          }),
        ),
    });
    if (!agreed) return;
    const options = reason.trim() ? { reason: reason.trim() } : {};
    await this.#do(
      "Cancel",
      () => api.cancel(this.model.id, options),
      ({ status }) =>
        toast(
          status === "requested"
            ? "It is asked to stop."
            : `It has ${status === "canceled" ? "been " : ""}${status}.`,
        ),
    );
  }

  async #delete() {
    const text = "Its arguments, result and log are gone for good.";
    if (
      !(await confirm({ title: "Delete this job?", text, action: "Delete the job", danger: true }))
    )
      return;
    await this.#do(
      "Delete",
      () => api.delete(this.model.id),
      () => {
        toast("The job is deleted.");
        this.#leave("jobs");
      },
    );
  }

  /** Nobody who went elsewhere meanwhile is led away from there. @param {string} path */
  #leave(path) {
    if (!this.model.view.closed) go(to(path));
  }
}
