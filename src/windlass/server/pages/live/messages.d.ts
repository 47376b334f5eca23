/** What a tab and its hub say to one another. */

import type {
  ConnectionState, JobEvent, ListFilter, Snapshot, Told, WindlassError,
} from "../client/windlass.js";

/** How the server is reached; `error.permanent`: it is not asked again before `restart()`. */
export interface Connection extends ConnectionState {
  /** When it last opened, or broke. */
  since: Date;
}

/** Errors are no longer errors when a message has carried them. */
export type ToldConnection = Omit<Connection, "error"> & { error: Told | null };

export interface ListOptions {
  /** All jobs of the list were told: at first, and after each connection that was lost. */
  onWhole?: () => unknown;
  /** It is over: the server refuses this list. */
  onError?: (error: WindlassError) => unknown;
}

/** `error` is null if the answer is of now; else the answer is the last that there was, or null. */
export type PollCallback = (answer: any, error: WindlassError | null) => unknown;

/** `n` is the tab's own number for it. */
export type Wish =
  | { do: "follow"; n: number; job: string; after: number }
  | { do: "list"; n: number; filter: ListFilter }
  | { do: "poll"; n: number; path: string; seconds: number };

export type Said =
  | Wish
  | { do: "hello"; visible: boolean; lock: string | null }
  | { do: "stop"; n: number }
  | { do: "visible"; visible: boolean }
  | { do: "refresh"; path: string }
  | { do: "restart"; who: string | null }
  | { do: "ping" }
  | { do: "bye" };

export type News =
  | { event: JobEvent }
  | { end: true }
  | { error: Told }
  | { snapshot: Snapshot }
  | { whole: true }
  | { answer: unknown; problem: Told | null };

export type Heard =
  | (News & { n: number })
  | { connection: ToldConnection }
  | { pong: true }
  /** The hub had taken the tab for gone, or has forgotten all for somebody else's sake. */
  | { stranger: true };

/** A `MessagePort`, as far as it is needed. */
export interface Port {
  onmessage: ((message: MessageEvent) => unknown) | null;
  postMessage(said: unknown): void;
  close(): void;
}
