/**
 * One axis of time for all attempts. Waiting can last a thousand times as long as the work, which
 * would then be too thin to see: a long wait is drawn shorter than it was, and says so.
 */

/** @import { Run } from "./past.js" */

const MOST = 0.4; // of all the work, that one wait takes of the axis
const LEAST = 0.02; // of the axis, that an attempt takes

/**
 * @typedef {object} Piece
 * @property {number} from
 * @property {number} until
 * @property {number | null} attempt null: nothing ran
 * @property {boolean} cut drawn shorter than it was
 * @property {number} x of 1
 * @property {number} width
 */

export class Axis {
  /** @type {Piece[]} */
  pieces = [];

  /**
   * @param {Run[]} runs
   * @param {number} begin
   * @param {number} end
   */
  constructor(runs, begin, end) {
    let at = begin;
    for (const run of runs) {
      if (run.from > at) this.#add(at, run.from, null);
      at = Math.max(at, run.from);
      const until = Math.max(at, run.until ?? end);
      this.#add(at, until, run.number);
      at = until;
    }
    if (end > at) this.#add(at, end, null);
    this.#lay();
  }

  /**
   * @param {number} from
   * @param {number} until
   * @param {number | null} attempt
   */
  #add(from, until, attempt) {
    this.pieces.push({ from, until, attempt, cut: false, x: 0, width: 0 });
  }

  #lay() {
    const length = (/** @type {Piece} */ { from, until }) => until - from;
    const work = this.pieces.filter(({ attempt }) => attempt !== null);
    const worked = work.reduce((sum, piece) => sum + length(piece), 0);
    const most = worked > 0 ? worked * MOST : Infinity;
    for (const piece of this.pieces) {
      piece.cut = piece.attempt === null && length(piece) > most;
      piece.width = piece.cut ? most : length(piece);
    }
    const whole = this.pieces.reduce((sum, { width }) => sum + width, 0) || 1;
    for (const piece of work) piece.width = Math.max(piece.width, whole * LEAST);
    const total = this.pieces.reduce((sum, { width }) => sum + width, 0) || 1;
    let x = 0;
    for (const piece of this.pieces) {
      piece.width /= total;
      piece.x = x;
      x += piece.width;
    }
  }

  /** Where an instant is: 0 to 1. @param {number} time */
  x(time) {
    for (const { from, until, x, width } of this.pieces) {
      if (time <= until)
        return x + width * (until > from ? Math.max(0, (time - from) / (until - from)) : 0);
    }
    return 1;
  }
}
