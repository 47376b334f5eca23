/**
 * What a program writes to a terminal, as lines of coloured text. Colours and weights (SGR) become
 * names of classes; a carriage return goes back to the beginning of the line, and what follows is
 * written over it; all other commands to a terminal are left out. A program may write anything: what
 * one character costs here is bounded, and no command reaches beyond the line that it stands in.
 */

/**
 * @typedef {object} Part Text that looks the same throughout.
 * @property {string} text
 * @property {string} look classes, or ""
 */

/** @typedef {{ fg: string, bg: string, marks: ReadonlySet<string> }} Pen */

/** @type {Pen} */
const PLAIN = { fg: "", bg: "", marks: new Set() };
const LOOKS = /** @type {Record<number, string>} */ ({
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
// A command, one that is not whole yet, or one character that is not text.
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
const LONGEST = 4096; // of a command that is not whole: no terminal waits for ever
const FARTHEST = 400; // columns that a command goes to: each would be filled with spaces
const MOST_PARTS = 256; // of a line; what is painted beyond keeps the last colour
export const WIDEST = 10_000; // characters of a line; what is longer goes on in the next

/** The lines of one stream. The last one is open: more may be written to it, or over it. */
export class Terminal {
  #pen = PLAIN;
  #look = "";
  #rest = "";
  #column = 0;
  #length = 0;
  /** @type {Part[]} */
  line = [];

  /**
   * @param {string} text
   * @param {(line: Part[]) => void} ended is given each line that is complete
   */
  write(text, ended) {
    const all = this.#rest + text;
    this.#rest = "";
    if (!SPECIAL.test(all)) {
      this.#put(all, ended);
      return;
    }
    let last = 0;
    for (const match of all.matchAll(COMMAND)) {
      this.#put(all.slice(last, match.index), ended);
      last = match.index + match[0].length;
      if (match[3] !== undefined) this.#rest = match[3].length < LONGEST ? match[3] : "";
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

  /** Within what is written, and not far beyond. @param {number} column */
  #go(column) {
    this.#column = Math.max(0, Math.min(column, Math.max(FARTHEST, this.#length)));
  }

  /** @param {string} given */
  #paint(given) {
    this.#pen = painted(this.#pen, given.split(";").flatMap(codesOf));
    const { fg, bg, marks } = this.#pen;
    this.#look = [fg && `fg-${fg}`, bg && `bg-${bg}`, ...marks].filter(Boolean).join(" ");
  }

  /** @param {string} text without commands @param {(line: Part[]) => void} ended */
  #put(text, ended) {
    for (let from = 0; from < text.length;) {
      if (this.#column >= WIDEST) this.#end(ended);
      const some = text.slice(from, from + WIDEST - this.#column);
      this.#place(some);
      from += some.length;
    }
  }

  /** At the column where the stream is. @param {string} text that fits on the line */
  #place(text) {
    const [column, length] = [this.#column, this.#length];
    this.#column += text.length;
    this.#length = Math.max(length, this.#column);
    if (column === length) {
      append(this.line, text, this.#look);
      return;
    }
    const before = slice(this.line, 0, column);
    if (column > length) append(before, " ".repeat(column - length), "");
    append(before, text, this.#look);
    for (const part of slice(this.line, this.#column)) append(before, part.text, part.look);
    this.line = before;
  }

  /** @param {number} which 0: what follows, 1: what is before, 2: all */
  #erase(which) {
    if (which === 0) this.line = slice(this.line, 0, this.#column);
    else if (which === 2) this.line = [];
    else if (which === 1) {
      const blank = { text: " ".repeat(this.#column), look: "" };
      this.line = [blank, ...slice(this.line, this.#column)];
    }
    this.#length = lengthOf(this.line);
  }
}

/**
 * One code, or several that belong together: `38:2::255:0:0` has a place for a colour space, and of
 * `4:3`, a kind of underline, only whether there is one is shown.
 *
 * @param {string} given
 */
function codesOf(given) {
  const codes = given.split(":").map((one) => Number(one) || 0);
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
    else if (code in LOOKS) marks.add(LOOKS[code]);
    else if (code in ENDS) for (const mark of ENDS[code]) marks.delete(mark);
    else if (code === 38 || code === 48) {
      const [colour, used] = extended(codes, nth + 1);
      if (code === 38) fg = colour;
      else bg = colour;
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
 * One of 256 colours, or any: as the nearest of the 16 that suit both light and dark.
 *
 * @param {number[]} codes
 * @param {number} at
 * @returns {[string, number]} the colour, and how many codes it took
 */
function extended(codes, at) {
  if (codes[at] === 2) {
    return [nearest(codes[at + 1] ?? 0, codes[at + 2] ?? 0, codes[at + 3] ?? 0), 4];
  }
  if (codes[at] !== 5) return ["", codes.length - at];
  const code = Math.min(255, codes[at + 1] ?? 0);
  if (code < 16) return [String(code), 2];
  if (code > 231) return [nearest(...grey(code)), 2];
  const level = (/** @type {number} */ value) => (value === 0 ? 0 : 55 + 40 * value);
  const cube = code - 16;
  return [
    nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)),
    2,
  ];
}

/** @param {number} code @returns {[number, number, number]} */
function grey(code) {
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
 * @param {string} look
 */
function append(line, text, look) {
  const last = line.at(-1);
  if (last !== undefined && (last.look === look || line.length >= MOST_PARTS)) {
    line[line.length - 1] = { text: last.text + text, look: last.look };
  } else {
    line.push({ text, look });
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
  for (const { text, look } of line) {
    const kept = text.slice(Math.max(0, from - at), Math.max(0, until - at));
    if (kept !== "") found.push({ text: kept, look });
    at += text.length;
  }
  return found;
}
