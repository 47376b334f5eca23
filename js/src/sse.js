/**
 * Server-sent events from bytes, as the HTML standard reads them (9.2.6, "Interpreting an event
 * stream"). `retry` is read and left alone: when to come back is this client's own rule.
 */

/** @import { SseMessage } from "../windlass.js" */

const LINE_END = /\r\n|\r|\n/;

export class SseParser {
  /** The id of the last message that had one, whether or not it had data. */
  lastEventId = "";
  /** Holds half a character back until the rest comes, and drops a byte order mark. */
  #decoder = new TextDecoder();
  /** A line that has not ended. */
  #rest = "";
  /** The last character was CR; if LF follows, it belongs to it. */
  #cr = false;
  #type = "";
  /** @type {string[]} */
  #data = [];
  /** @type {string | null} */
  #id = null;

  /**
   * What these bytes complete: messages and comments, in order. A message that the stream's end
   * leaves incomplete never comes.
   *
   * @param {Uint8Array} bytes
   * @returns {(SseMessage | { comment: string })[]}
   */
  push(bytes) {
    const found = [];
    for (const line of this.#lines(this.#decoder.decode(bytes, { stream: true }))) {
      const said = this.#read(line);
      if (said !== null) found.push(said);
    }
    return found;
  }

  /** @param {string} text */
  #lines(text) {
    if (text === "") return [];
    const fresh = this.#cr && text[0] === "\n" ? text.slice(1) : text;
    this.#cr = text.endsWith("\r");
    const lines = (this.#rest + fresh).split(LINE_END);
    this.#rest = lines.pop() ?? "";
    return lines;
  }

  /** @param {string} line */
  #read(line) {
    if (line === "") return this.#message();
    const colon = line.indexOf(":");
    if (colon === 0) return { comment: line.slice(1).trimStart() };
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (field === "data") this.#data.push(value);
    else if (field === "event") this.#type = value;
    else if (field === "id" && !value.includes("\0")) this.#id = value;
    return null;
  }

  #message() {
    const [type, data, id] = [this.#type || "message", this.#data, this.#id];
    [this.#type, this.#data, this.#id] = ["", [], null];
    if (id !== null) this.lastEventId = id;
    return data.length === 0 ? null : { type, data: data.join("\n"), id };
  }
}
