/**
 * Time axis of all attempts. A wait may be a thousand times longer than the attempts, which would
 * be too narrow to see: long waits are shortened and marked.
 */

/** @import { TimelineAttempt } from "./attempt-history.js" */

const MAX_WAIT = 0.4; // width of one wait, relative to all attempts
const MIN_ATTEMPT = 0.02; // width of an attempt, relative to the axis

/**
 * @typedef {object} Piece
 * @property {number} from
 * @property {number} until
 * @property {number | null} attempt null: a wait
 * @property {boolean} shortened on the axis
 * @property {number} x from 0 to 1
 * @property {number} width
 */

export class Axis {
  /** @type {Piece[]} */
  pieces = [];

  /**
   * @param {TimelineAttempt[]} attempts
   * @param {number} begin
   * @param {number} end
   */
  constructor(attempts, begin, end) {
    let at = begin;
    for (const attempt of attempts) {
      if (attempt.from > at) this.#add(at, attempt.from, null);
      at = Math.max(at, attempt.from);
      const until = Math.max(at, attempt.until ?? end);
      this.#add(at, until, attempt.number);
      at = until;
    }
    if (end > at) this.#add(at, end, null);
    this.#layOut();
  }

  /**
   * @param {number} from
   * @param {number} until
   * @param {number | null} attempt
   */
  #add(from, until, attempt) {
    this.pieces.push({ from, until, attempt, shortened: false, x: 0, width: 0 });
  }

  #layOut() {
    const length = (/** @type {Piece} */ { from, until }) => until - from;
    const attempts = this.pieces.filter(({ attempt }) => attempt !== null);
    const attemptTime = attempts.reduce((sum, piece) => sum + length(piece), 0);
    const longestWait = attemptTime > 0 ? attemptTime * MAX_WAIT : Infinity;
    for (const piece of this.pieces) {
      piece.shortened = piece.attempt === null && length(piece) > longestWait;
      piece.width = piece.shortened ? longestWait : length(piece);
    }
    const whole = this.pieces.reduce((sum, { width }) => sum + width, 0) || 1;
    for (const piece of attempts) piece.width = Math.max(piece.width, whole * MIN_ATTEMPT);
    const total = this.pieces.reduce((sum, { width }) => sum + width, 0) || 1;
    let x = 0;
    for (const piece of this.pieces) {
      piece.width /= total;
      piece.x = x;
      x += piece.width;
    }
  }

  /** Return the position of a time, 0 to 1. @param {number} time */
  x(time) {
    for (const { from, until, x, width } of this.pieces) {
      if (time <= until)
        return x + width * (until > from ? Math.max(0, (time - from) / (until - from)) : 0);
    }
    return 1;
  }
}
