/**
 * Parser of server-sent events, as in the HTML standard (9.2.6, "Interpreting an event stream").
 * Ignores `retry`: this client has its own backoff.
 */

/** @import { SseMessage } from "../../windlass.js" */

const LINE_END = /\r\n|\r|\n/;

export class SseParser {
  /** Id of the last message with an id, with or without data. */
  lastEventId = "";
  /** Buffers incomplete characters and drops a byte order mark. */
  #decoder = new TextDecoder();
  /** The incomplete last line. */
  #rest = "";
  /** The last character was CR; a following LF belongs to the same line end. */
  #cr = false;
  #type = "";
  /** @type {string[]} */
  #data = [];
  /** @type {string | null} */
  #id = null;

  /**
   * Return the messages and comments that these bytes complete, in order. Drops a message that is
   * incomplete at the end of the stream.
   *
   * @param {Uint8Array} bytes
   * @returns {(SseMessage | { comment: string })[]}
   */
  push(bytes) {
    const items = [];
    for (const line of this.#lines(this.#decoder.decode(bytes, { stream: true }))) {
      const item = this.#read(line);
      if (item !== null) items.push(item);
    }
    return items;
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
