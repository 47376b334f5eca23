/** Form to enqueue a job, with fields from the task's argument schema. */

/** @import { Page, PageView } from "../page-view.js" */
/** @import { Task, WindlassError } from "../client/windlass.js" */
/** @import { FormValues } from "../enqueue/form-values.js" */
/** @import { Field } from "../enqueue/schema-fields.js" */

import { api } from "../api.js";
import { formFields } from "../enqueue/form-fields.js";
import { readValues } from "../enqueue/form-values.js";
import { fieldsOf } from "../enqueue/schema-fields.js";
import { navigate, pageUrl } from "../navigation.js";
import { h } from "../view/virtual-dom.js";
import { button, card, empty, errorNote, jobLink, title } from "../view/components.js";
import { toast } from "../view/toast.js";

/** Fields of the job options. */
const OPTIONS = fieldsOf({
  properties: {
    queue: { type: "string", description: "empty: the task's queue" },
    priority: { type: "integer", description: "higher runs first" },
    delay: { type: "string", description: "start after: 30s, 5m, 2h" },
    tags: { type: "array", items: { type: "string" } },
    uniqueKey: { type: "string", description: "at most one active job with this key" },
    owner: { type: "string" },
  },
});

/** @type {Page} */
export function enqueuePage(view) {
  view.title("Enqueue");
  const form = new EnqueueForm(view);
  return () => form.render();
}

class EnqueueForm {
  /** @type {Task[] | null} */
  #tasks = null;
  /** @type {unknown} */
  #error = null;
  #busy = false;
  /** The last request and its idempotency key: the same form creates no second job. */
  #sent = { text: "", key: "" };
  /** @type {Field[]} */
  #fields = [];
  #taskName = "";
  /** @type {FormValues} */
  #arguments = new Map();
  /** @type {Map<string, string>} */
  #argumentErrors = new Map();
  /** @type {FormValues} */
  #options = new Map();
  /** @type {Map<string, string>} */
  #optionErrors = new Map();

  /** @param {PageView} view */
  constructor(view) {
    this.view = view;
    void this.#load();
  }

  async #load() {
    try {
      this.#tasks = await api.tasks();
      this.#error = null;
    } catch (error) {
      this.#error = error;
    }
    this.view.changed();
  }

  get #task() {
    const name = this.view.location.query.get("task");
    return this.#tasks?.find((task) => task.name === name) ?? null;
  }

  render() {
    const heading = title("Enqueue a job");
    if (this.#tasks === null) {
      return [
        heading,
        this.#error === null
          ? h("div", { class: "skeleton" })
          : errorNote(this.#error, () => this.#load()),
      ];
    }
    if (this.#tasks.length === 0) {
      return [
        heading,
        empty(
          "No tasks registered",
          "Start the server with your app: windlass serve module:app",
          null,
          "enqueue",
        ),
      ];
    }
    const task = this.#task;
    if (task !== null && task.name !== this.#taskName) this.#selectTask(task);
    return [
      heading,
      h("div", { class: "enqueue" }, this.#taskSelect(task), task !== null && this.#form(task)),
    ];
  }

  /** @param {Task} task */
  #selectTask(task) {
    this.#taskName = task.name;
    this.#fields = fieldsOf(task.arguments);
    this.#arguments = new Map();
    this.#argumentErrors = new Map();
    this.#error = null;
  }

  /** @param {Task | null} task */
  #taskSelect(task) {
    const choose = (/** @type {Event} */ event) => {
      const { value } = /** @type {HTMLSelectElement} */ (event.target);
      navigate(pageUrl("enqueue", { task: value }), { replace: true });
    };
    return h(
      "div",
      { class: "field" },
      h("label", { for: "task" }, "Task"),
      h(
        "select",
        { id: "task", class: "input", value: task?.name ?? "", onchange: choose },
        h("option", { value: "" }, "Select a task …"),
        this.#tasks?.map((task) => h("option", { value: task.name, key: task.name }, task.name)),
      ),
      h("p", { class: "hint about" }, task?.description ?? "Select a task to see its arguments."),
    );
  }

  /** @param {Task} task */
  #form(task) {
    const changed = () => this.view.changed();
    const submit = (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      void this.#send(task);
    };
    return h(
      "form",
      { onsubmit: submit, key: task.name, novalidate: true },
      card(
        "Arguments",
        this.#fields.length > 0
          ? h(
              "div",
              { class: "fields" },
              formFields(this.#fields, {
                values: this.#arguments,
                errors: this.#argumentErrors,
                changed,
              }),
            )
          : h("p", { class: "soft" }, "This task has no arguments."),
      ),
      h(
        "details",
        { class: "card more" },
        h("summary", null, "Options"),
        h(
          "div",
          { class: "fields inside" },
          formFields(OPTIONS, { values: this.#options, errors: this.#optionErrors, changed }),
        ),
      ),
      this.#error !== null && errorNote(this.#error),
      h(
        "div",
        { class: "send" },
        button(this.#busy ? "Enqueuing …" : "Enqueue", undefined, {
          kind: "main",
          type: "submit",
          icon: "enqueue",
          disabled: this.#busy,
        }),
        h("span", { class: "soft small" }, `to queue ${task.queue}`),
      ),
    );
  }

  /** @param {Task} task */
  async #send(task) {
    if (this.#busy) return; // ignores a double click
    const args = readValues(this.#fields, this.#arguments);
    const options = readValues(OPTIONS, this.#options);
    this.#argumentErrors = args.errors;
    this.#optionErrors = options.errors;
    this.#error = null;
    if (args.errors.size + options.errors.size > 0) {
      this.#focusError();
      return;
    }
    this.#busy = true;
    this.view.changed();
    try {
      const requestId = this.#key(JSON.stringify([task.name, args.values, options.values]));
      const job = await api.enqueue(task.name, args.values, { ...options.values, requestId });
      this.#sent = { text: "", key: "" };
      toast([job.duplicate ? "Already enqueued: " : "Enqueued: ", jobLink(job.id)]);
      if (!this.view.closed) navigate(pageUrl(`jobs/${job.id}`));
    } catch (error) {
      this.#showErrors(/** @type {WindlassError} */ (error));
    }
    this.#busy = false;
    if (!this.view.closed) this.#focusError();
  }

  /**
   * Return the idempotency key of a request: the same for the same form until a response arrives.
   * After a broken connection the user does not know whether the job exists, and sends it again.
   *
   * @param {string} text
   */
  #key(text) {
    if (text !== this.#sent.text) this.#sent = { text, key: randomKey() };
    return this.#sent.key;
  }

  /**
   * Show each error of the server next to its field.
   *
   * @param {WindlassError} error
   */
  #showErrors(error) {
    let shown = 0;
    for (const { field, message } of error.fields ?? []) {
      const path = field.replace(/^arguments\./, "");
      const [fields, errors] = field.startsWith("arguments.")
        ? [this.#fields, this.#argumentErrors]
        : [OPTIONS, this.#optionErrors];
      const found = nearestField(fields, path);
      if (found === null) continue;
      errors.set(found.path, message);
      shown += 1;
    }
    if (shown === 0 || shown < (error.fields ?? []).length) this.#error = error;
    if (this.view.closed) toast(error.message, "failed");
  }

  /** Render, and focus the first invalid field. */
  #focusError() {
    this.view.draw();
    const first = this.view.root.querySelector("[aria-invalid]");
    /** @type {HTMLElement | null | undefined} */ (first)
      ?.closest("details")
      ?.setAttribute("open", "");
    /** @type {HTMLElement | null} */ (first)?.focus();
  }
}

/**
 * Return the field of a path, or its closest parent: errors may be deeper than fields.
 *
 * @param {Field[]} fields
 * @param {string} path
 * @returns {Field | null}
 */
function nearestField(fields, path) {
  for (const field of fields) {
    if (field.path === path) return field;
    if (!path.startsWith(`${field.path}.`)) continue;
    return field.kind === "group" ? nearestField(field.fields, path) : field;
  }
  return null;
}

const randomKey = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (word) => word.toString(36)).join("-");
