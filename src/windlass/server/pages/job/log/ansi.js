/**
 * Terminal output as lines of styled text. Colors and weights (SGR) become CSS classes. A carriage
 * return moves to the start of the line, and later text overwrites it. Other escape sequences are
 * dropped. Output is untrusted: the cost per character is bounded, and no sequence affects another
 * line.
 */

/**
 * @typedef {object} Part Text of one style.
 * @property {string} text
 * @property {string} style classes, or ""
 */

/** @typedef {{ fg: string, bg: string, marks: ReadonlySet<string> }} Pen */

/** @type {Pen} */
const PLAIN = { fg: "", bg: "", marks: new Set() };
const STYLES = /** @type {Record<number, string>} */ ({
  1: "bold",
  2: "dim",
  3: "italic",
  4: "underline",
  7: "inverse",
  8: "conceal",
  9: "strike",
});
const ENDS = /** @type {Record<number, string[]>} */ ({
  22: ["bold", "dim"],
  23: ["italic"],
  24: ["underline"],
  27: ["inverse"],
  28: ["conceal"],
  29: ["strike"],
});
const SPECIAL = /[\x00-\x08\x0a-\x1f\x7f-\x9f]/;
// A complete sequence, an incomplete one at the end, or one control character.
const COMMAND = new RegExp(
  [
    String.raw`\x1b\[([0-?]*)[ -/]*([@-~])`,
    String.raw`\x1b[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)`,
    String.raw`\x1b[ -/]*[0-OQ-WYZ\\\x60-~]`,
    String.raw`(\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*\x1b?|[ -/]*)?)$`,
    SPECIAL.source,
  ].join("|"),
  "g",
);
const MAX_SEQUENCE = 4096; // characters of an incomplete sequence
const MAX_COLUMN = 400; // for cursor movement: gaps are filled with spaces
const MAX_PARTS = 256; // of a line; later parts keep the last style
export const MAX_WIDTH = 10_000; // characters of a line; longer lines are wrapped

/** Lines of one stream. The last line is open: output may extend or overwrite it. */
export class Terminal {
  #pen = PLAIN;
  #style = "";
  #pending = "";
  #column = 0;
  #length = 0;
  /** @type {Part[]} */
  line = [];

  /**
   * @param {string} text
   * @param {(line: Part[]) => void} ended called with each complete line
   */
  write(text, ended) {
    const all = this.#pending + text;
    this.#pending = "";
    if (!SPECIAL.test(all)) {
      this.#put(all, ended);
      return;
    }
    let last = 0;
    for (const match of all.matchAll(COMMAND)) {
      this.#put(all.slice(last, match.index), ended);
      last = match.index + match[0].length;
      if (match[3] !== undefined) this.#pending = match[3].length < MAX_SEQUENCE ? match[3] : "";
      else if (match[2] !== undefined) this.#command(match[2], match[1]);
      else if (match[0] === "\n") this.#end(ended);
      else if (match[0] === "\r") this.#column = 0;
      else if (match[0] === "\b") this.#column = Math.max(0, this.#column - 1);
    }
    this.#put(all.slice(last), ended);
  }

  /** @param {(line: Part[]) => void} ended */
  #end(ended) {
    ended(this.line);
    this.line = [];
    this.#column = this.#length = 0;
  }

  /**
   * @param {string} name
   * @param {string} given
   */
  #command(name, given) {
    const first = Number.parseInt(given, 10) || 0;
    if (name === "m") this.#paint(given);
    else if (name === "K") this.#erase(first);
    else if (name === "G") this.#go(first - 1);
    else if (name === "C") this.#go(this.#column + Math.max(1, first));
    else if (name === "D") this.#go(this.#column - Math.max(1, first));
  }

  /** Move the cursor, at most slightly beyond the text. @param {number} column */
  #go(column) {
    this.#column = Math.max(0, Math.min(column, Math.max(MAX_COLUMN, this.#length)));
  }

  /** @param {string} given */
  #paint(given) {
    this.#pen = painted(this.#pen, given.split(";").flatMap(codesOf));
    const { fg, bg, marks } = this.#pen;
    this.#style = [fg && `fg-${fg}`, bg && `bg-${bg}`, ...marks].filter(Boolean).join(" ");
  }

  /** @param {string} text without commands @param {(line: Part[]) => void} ended */
  #put(text, ended) {
    for (let from = 0; from < text.length;) {
      if (this.#column >= MAX_WIDTH) this.#end(ended);
      const some = text.slice(from, from + MAX_WIDTH - this.#column);
      this.#place(some);
      from += some.length;
    }
  }

  /** Write at the current column. @param {string} text that fits on the line */
  #place(text) {
    const [column, length] = [this.#column, this.#length];
    this.#column += text.length;
    this.#length = Math.max(length, this.#column);
    if (column === length) {
      append(this.line, text, this.#style);
      return;
    }
    const before = slice(this.line, 0, column);
    if (column > length) append(before, " ".repeat(column - length), "");
    append(before, text, this.#style);
    for (const part of slice(this.line, this.#column)) append(before, part.text, part.style);
    this.line = before;
  }

  /** @param {number} which 0: after the cursor, 1: before it, 2: all */
  #erase(which) {
    if (which === 0) this.line = slice(this.line, 0, this.#column);
    else if (which === 2) this.line = [];
    else if (which === 1) {
      const blank = { text: " ".repeat(this.#column), style: "" };
      this.line = [blank, ...slice(this.line, this.#column)];
    }
    this.#length = lengthOf(this.line);
  }
}

/**
 * Return the codes of a parameter with subparameters. `38:2::255:0:0` has an optional color space;
 * `4:3` (underline style) becomes a plain underline.
 *
 * @param {string} given
 */
function codesOf(given) {
  const codes = given.split(":").map((code) => Number(code) || 0);
  if (codes.length === 1) return codes;
  if (codes[0] === 4) return [codes[1] === 0 ? 24 : 4];
  if (codes[0] !== 38 && codes[0] !== 48) return codes.slice(0, 1);
  return codes[1] === 2 && codes.length > 5
    ? [codes[0], 2, ...codes.slice(3, 6)]
    : codes.slice(0, 5);
}

/**
 * @param {Pen} pen
 * @param {number[]} codes
 * @returns {Pen}
 */
function painted(pen, codes) {
  let { fg, bg } = pen;
  let marks = new Set(pen.marks);
  for (let nth = 0; nth < codes.length; nth += 1) {
    const code = codes[nth];
    if (code === 0) [fg, bg, marks] = ["", "", new Set()];
    else if (code in STYLES) marks.add(STYLES[code]);
    else if (code in ENDS) for (const mark of ENDS[code]) marks.delete(mark);
    else if (code === 38 || code === 48) {
      const [color, used] = extended(codes, nth + 1);
      if (code === 38) fg = color;
      else bg = color;
      nth += used;
    } else if (code >= 30 && code <= 37) fg = String(code - 30);
    else if (code >= 90 && code <= 97) fg = String(code - 82);
    else if (code >= 40 && code <= 47) bg = String(code - 40);
    else if (code >= 100 && code <= 107) bg = String(code - 92);
    else if (code === 39) fg = "";
    else if (code === 49) bg = "";
  }
  return { fg, bg, marks };
}

/**
 * Map a 256-color or RGB color to the nearest of the 16 theme colors.
 *
 * @param {number[]} codes
 * @param {number} at
 * @returns {[string, number]} the color, and the number of codes used
 */
function extended(codes, at) {
  if (codes[at] === 2) {
    return [nearest(codes[at + 1] ?? 0, codes[at + 2] ?? 0, codes[at + 3] ?? 0), 4];
  }
  if (codes[at] !== 5) return ["", codes.length - at];
  const code = Math.min(255, codes[at + 1] ?? 0);
  if (code < 16) return [String(code), 2];
  if (code > 231) return [nearest(...gray(code)), 2];
  const level = (/** @type {number} */ value) => (value === 0 ? 0 : 55 + 40 * value);
  const cube = code - 16;
  return [
    nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)),
    2,
  ];
}

/** @param {number} code @returns {[number, number, number]} */
function gray(code) {
  const value = 8 + 10 * (code - 232);
  return [value, value, value];
}

/**
 * @param {number} red
 * @param {number} green
 * @param {number} blue
 */
function nearest(red, green, blue) {
  const most = Math.max(red, green, blue);
  const least = Math.min(red, green, blue);
  if (most - least < 40) return most < 64 ? "0" : most < 150 ? "8" : most < 220 ? "7" : "15";
  const edge = (most + least) / 2;
  const hue = (red > edge ? 1 : 0) + (green > edge ? 2 : 0) + (blue > edge ? 4 : 0);
  return String(hue + (least > 80 || most > 230 ? 8 : 0));
}

/** @param {Part[]} line */
export const lengthOf = (line) => line.reduce((sum, { text }) => sum + text.length, 0);

/**
 * @param {Part[]} line
 * @param {string} text
 * @param {string} style
 */
function append(line, text, style) {
  const last = line.at(-1);
  if (last !== undefined && (last.style === style || line.length >= MAX_PARTS)) {
    line[line.length - 1] = { text: last.text + text, style: last.style };
  } else {
    line.push({ text, style });
  }
}

/**
 * @param {Part[]} line
 * @param {number} from
 * @param {number} [until]
 * @returns {Part[]}
 */
export function slice(line, from, until = Infinity) {
  const found = [];
  let at = 0;
  for (const { text, style } of line) {
    const kept = text.slice(Math.max(0, from - at), Math.max(0, until - at));
    if (kept !== "") found.push({ text: kept, style });
    at += text.length;
  }
  return found;
}
