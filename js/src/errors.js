/** Error class of the client, for HTTP problems and for connection failures. */

/** @import { FieldProblem, Problem } from "../windlass.js" */

const TEMPORARY = new Set([408, 425, 429]);

/** Whether a retry is pointless: the request is invalid or not allowed. */
const isPermanent = (/** @type {number} */ status) =>
  status >= 400 && status < 500 && !TEMPORARY.has(status);

export class WindlassError extends Error {
  /**
   * @param {import("../windlass.js").ProblemInit} problem
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
    /** Seconds, from the Retry-After header. */
    this.retryAfter = problem.retryAfter ?? 0;
  }
}

/**
 * Return the error of a response without a success status.
 *
 * @param {Response} response
 */
export async function responseError(response) {
  const { status } = response;
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  /** @type {Partial<Problem>} */
  let problem = {};
  if (/[/+]json\b/.test(response.headers.get("content-type") ?? "")) {
    problem = await response.json().catch(() => ({}));
  }
  const { title = `HTTP ${status}`, detail = response.statusText || "no details in the response" } =
    problem;
  return new WindlassError({ ...problem, title, detail, status, retryAfter });
}

/**
 * Return the error of a broken connection: no response, a truncated response, or silence.
 *
 * @param {string} detail
 * @param {unknown} [cause]
 */
export function connectionError(detail, cause) {
  const advice = "check that the server is running and reachable from this machine";
  const title = "Can't reach the server";
  return new WindlassError({ title, code: "connection", detail, advice }, { cause });
}
