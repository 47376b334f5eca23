/** What goes wrong, in one class: what the server refuses, and what happens on the way to it. */

/** @import { FieldProblem, Problem } from "../windlass.js" */

const TEMPORARY = new Set([408, 425, 429]);

/** Whether to ask again is pointless: the request is wrong, or not allowed. */
const isPermanent = (/** @type {number} */ status) =>
  status >= 400 && status < 500 && !TEMPORARY.has(status);

export class WindlassError extends Error {
  /**
   * @param {import("../windlass.js").Told} problem
   * @param {ErrorOptions} [options]
   */
  constructor(problem, options) {
    const { title = "", detail, advice = "" } = problem;
    super([title, detail].filter(Boolean).join(": ") + (advice && `; ${advice}`), options);
    this.name = "WindlassError";
    this.type = problem.type ?? "about:blank";
    this.title = title;
    this.detail = detail;
    this.status = problem.status ?? 0;
    this.code = problem.code ?? "unknown";
    this.advice = advice;
    this.instance = problem.instance ?? null;
    /** @type {FieldProblem[]} */
    this.fields = problem.errors ?? [];
    this.permanent = problem.permanent ?? isPermanent(this.status);
    /** Seconds for which the server asks to be left alone. */
    this.retryAfter = problem.retryAfter ?? 0;
  }
}

/**
 * What an answer that is no success says.
 *
 * @param {Response} response
 */
export async function refusal(response) {
  const { status } = response;
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  /** @type {Partial<Problem>} */
  let problem = {};
  if (/[/+]json\b/.test(response.headers.get("content-type") ?? "")) {
    problem = await response.json().catch(() => ({}));
  }
  const { title = `HTTP ${status}`, detail = response.statusText || "the server said no more" } =
    problem;
  return new WindlassError({ ...problem, title, detail, status, retryAfter });
}

/**
 * What happened between us and the server: no answer, half an answer, silence.
 *
 * @param {string} detail
 * @param {unknown} [cause]
 */
export function lost(detail, cause) {
  const advice = "look whether the server runs, and whether this machine reaches it";
  const title = "No connection";
  return new WindlassError({ title, code: "connection", detail, advice }, { cause });
}
