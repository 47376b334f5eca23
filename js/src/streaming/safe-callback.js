/** Callbacks whose errors are logged. */

/** @import { Log } from "../../windlass.js" */

/**
 * Wrap a callback so that its errors are logged and affect neither others nor the stream.
 *
 * @template {any[]} A
 * @param {Log} log
 * @param {((...values: A) => unknown) | undefined} callback
 * @returns {(...values: A) => void}
 */
export function safeCallback(log, callback) {
  return (...values) => {
    try {
      callback?.(...values);
    } catch (error) {
      log.error("windlass: a callback failed", error);
    }
  };
}
