/** Messages between a tab and the hub. */

import type {
  ConnectionState, JobEvent, ListFilter, Snapshot, ProblemInit, WindlassError,
} from "../client/windlass.js";

/** Connection to the server. `error.permanent`: no requests until `restart()`. */
export interface Connection extends ConnectionState {
  /** When it last opened or broke. */
  since: Date;
}

/** A connection as a message: its error is plain data. */
export type ConnectionMessage = Omit<Connection, "error"> & { error: ProblemInit | null };

export interface ListOptions {
  /** The whole list was delivered: after subscribing, and after each reconnect. */
  onLoaded?: () => unknown;
  /** The subscription ended: the server rejects this list. */
  onError?: (error: WindlassError) => unknown;
}

/** `error` is null if the answer is current; else the answer is the last known one, or null. */
export type PollCallback = (answer: any, error: WindlassError | null) => unknown;

/** `n` is the tab's number of the subscription. */
export type SubscribeRequest =
  | { do: "follow"; n: number; job: string; after: number }
  | { do: "list"; n: number; filter: ListFilter }
  | { do: "poll"; n: number; path: string; seconds: number };

export type HubRequest =
  | SubscribeRequest
  | { do: "hello"; visible: boolean; lock: string | null }
  | { do: "stop"; n: number }
  | { do: "visible"; visible: boolean }
  | { do: "refresh"; path: string }
  | { do: "restart"; identity: string | null }
  | { do: "ping" }
  | { do: "bye" };

export type SubscriptionUpdate =
  | { event: JobEvent }
  | { end: true }
  | { error: ProblemInit }
  | { snapshot: Snapshot }
  | { loaded: true }
  | { answer: unknown; problem: ProblemInit | null };

export type HubMessage =
  | (SubscriptionUpdate & { n: number })
  | { connection: ConnectionMessage }
  | { pong: true }
  /** The hub dropped the tab, or reset for another user: the tab subscribes again. */
  | { resubscribe: true };

/** The part of `MessagePort` in use. */
export interface Port {
  onmessage: ((message: MessageEvent) => unknown) | null;
  postMessage(message: unknown): void;
  close(): void;
}
