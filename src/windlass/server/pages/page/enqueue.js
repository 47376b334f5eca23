/** A job, put in by hand: the task's own arguments, checked as its code checks them. */

/** @import { Page, View } from "../page.js" */
/** @import { Task, WindlassError } from "../client/windlass.js" */
/** @import { Field, Written } from "../enqueue/schema.js" */

import { drawn } from "../enqueue/form.js";
import { fieldsOf, read } from "../enqueue/schema.js";
import { go, to } from "../router.js";
import { api } from "../session.js";
import { h } from "../view/dom.js";
import { button, card, empty, jobLink, title, trouble } from "../view/parts.js";
import { toast } from "../view/toast.js";

/** What a job may be asked to be, as a schema like that of a task's arguments. */
const OPTIONS = fieldsOf({
  properties: {
    queue: { type: "string", description: "the task's own, if left empty" },
    priority: { type: "integer", description: "higher goes first" },
    delay: { type: "string", description: "not before so long: 30s, 5m, 2h" },
    tags: { type: "array", items: { type: "string" } },
    uniqueKey: { type: "string", description: "at most one job with this key that has not ended" },
    owner: { type: "string" },
  },
});

/** @type {Page} */
export function enqueuePage(view) {
  view.title("Enqueue");
  const form = new Enqueue(view);
  return () => form.draw();
}

class Enqueue {
  /** @type {Task[] | null} */
  #tasks = null;
  /** @type {unknown} */
  #error = null;
  #busy = false;
  /** What was sent last, and under which key: a repeat of it makes no second job. */
  #sent = { text: "", key: "" };
  /** @type {Field[]} */
  #fields = [];
  #chosen = "";
  /** @type {Written} */
  #written = new Map();
  /** @type {Map<string, string>} */
  #wrong = new Map();
  /** @type {Written} */
  #options = new Map();
  /** @type {Map<string, string>} */
  #wrongOptions = new Map();

  /** @param {View} view */
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
    const named = this.view.place.query.get("task");
    return this.#tasks?.find((one) => one.name === named) ?? null;
  }

  draw() {
    const heading = title("Enqueue a job");
    if (this.#tasks === null) {
      return [
        heading,
        this.#error === null
          ? h("div", { class: "skeleton" })
          : trouble(this.#error, () => this.#load()),
      ];
    }
    if (this.#tasks.length === 0) {
      return [
        heading,
        empty(
          "The server knows no task",
          "Give it your app: windlass serve module:app",
          null,
          "enqueue",
        ),
      ];
    }
    const task = this.#task;
    if (task !== null && task.name !== this.#chosen) this.#begin(task);
    return [
      heading,
      h("div", { class: "enqueue" }, this.#chooser(task), task !== null && this.#form(task)),
    ];
  }

  /** @param {Task} task */
  #begin(task) {
    this.#chosen = task.name;
    this.#fields = fieldsOf(task.arguments);
    this.#written = new Map();
    this.#wrong = new Map();
    this.#error = null;
  }

  /** @param {Task | null} task */
  #chooser(task) {
    const choose = (/** @type {Event} */ event) => {
      const { value } = /** @type {HTMLSelectElement} */ (event.target);
      go(to("enqueue", { task: value }), { replace: true });
    };
    return h(
      "div",
      { class: "field" },
      h("label", { for: "task" }, "Task"),
      h(
        "select",
        { id: "task", class: "input", value: task?.name ?? "", onchange: choose },
        h("option", { value: "" }, "choose …"),
        this.#tasks?.map((one) => h("option", { value: one.name, key: one.name }, one.name)),
      ),
      h("p", { class: "hint about" }, task?.about ?? "Its arguments are asked for below."),
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
              drawn(this.#fields, { written: this.#written, wrong: this.#wrong, changed }),
            )
          : h("p", { class: "soft" }, "It takes none."),
      ),
      h(
        "details",
        { class: "card more" },
        h("summary", null, "Options"),
        h(
          "div",
          { class: "fields inside" },
          drawn(OPTIONS, { written: this.#options, wrong: this.#wrongOptions, changed }),
        ),
      ),
      this.#error !== null && trouble(this.#error),
      h(
        "div",
        { class: "send" },
        button(this.#busy ? "Enqueueing …" : "Enqueue", undefined, {
          kind: "main",
          type: "submit",
          icon: "enqueue",
          disabled: this.#busy,
        }),
        h("span", { class: "soft small" }, `to ${task.queue}`),
      ),
    );
  }

  /** @param {Task} task */
  async #send(task) {
    if (this.#busy) return; // whoever presses twice means it once
    const args = read(this.#fields, this.#written);
    const options = read(OPTIONS, this.#options);
    this.#wrong = args.wrong;
    this.#wrongOptions = options.wrong;
    this.#error = null;
    if (args.wrong.size + options.wrong.size > 0) {
      this.#show();
      return;
    }
    this.#busy = true;
    this.view.changed();
    try {
      const requestId = this.#key(JSON.stringify([task.name, args.values, options.values]));
      const job = await api.enqueue(task.name, args.values, { ...options.values, requestId });
      this.#sent = { text: "", key: "" };
      toast([job.duplicate ? "It was there before: " : "Enqueued: ", jobLink(job.id)]);
      if (!this.view.closed) go(to(`jobs/${job.id}`));
    } catch (error) {
      this.#refused(/** @type {WindlassError} */ (error));
    }
    this.#busy = false;
    if (!this.view.closed) this.#show();
  }

  /**
   * The key of a request: the same for the same until it is answered. Whoever sees the connection
   * break cannot know whether the job was made, and sends it again.
   *
   * @param {string} text
   */
  #key(text) {
    if (text !== this.#sent.text) this.#sent = { text, key: randomKey() };
    return this.#sent.key;
  }

  /**
   * Put each of the server's words beside the field that it is about.
   *
   * @param {WindlassError} error
   */
  #refused(error) {
    let told = 0;
    for (const { field, message } of error.fields ?? []) {
      const path = field.replace(/^arguments\./, "");
      const [fields, wrong] = field.startsWith("arguments.")
        ? [this.#fields, this.#wrong]
        : [OPTIONS, this.#wrongOptions];
      const found = nearest(fields, path);
      if (found === null) continue;
      wrong.set(found.path, message);
      told += 1;
    }
    if (told === 0 || told < (error.fields ?? []).length) this.#error = error;
    if (this.view.closed) toast(error.message, "failed");
  }

  /** Draw, and lead to the first that is wrong. */
  #show() {
    this.view.draw();
    const first = this.view.root.querySelector("[aria-invalid]");
    /** @type {HTMLElement | null | undefined} */ (first)
      ?.closest("details")
      ?.setAttribute("open", "");
    /** @type {HTMLElement | null} */ (first)?.focus();
  }
}

/**
 * The field of this path, or the one around it: what is wrong may lie deeper than fields go.
 *
 * @param {Field[]} fields
 * @param {string} path
 * @returns {Field | null}
 */
function nearest(fields, path) {
  for (const field of fields) {
    if (field.path === path) return field;
    if (!path.startsWith(`${field.path}.`)) continue;
    return field.kind === "group" ? nearest(field.fields, path) : field;
  }
  return null;
}

const randomKey = () =>
  Array.from(crypto.getRandomValues(new Uint32Array(4)), (one) => one.toString(36)).join("-");
