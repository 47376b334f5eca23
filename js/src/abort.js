/** Abort controllers that follow a signal. */

/**
 * Return a controller that aborts with this signal. `release` removes the link.
 *
 * @param {AbortSignal} [signal]
 */
export function linkedController(signal) {
  const controller = new AbortController();
  const abort = () => controller.abort(signal?.reason);
  if (signal?.aborted) abort();
  else signal?.addEventListener("abort", abort, { once: true });
  return { controller, release: () => signal?.removeEventListener("abort", abort) };
}
