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

/** `id` is the number of the subscription in its tab. */
export type SubscribeRequest =
  | { type: "follow"; id: number; job: string; after: number }
  | { type: "list"; id: number; filter: ListFilter }
  | { type: "poll"; id: number; path: string; seconds: number };

export type HubRequest =
  | SubscribeRequest
  | { type: "register"; visible: boolean; lock: string | null }
  | { type: "unsubscribe"; id: number }
  | { type: "visibility"; visible: boolean }
  | { type: "refresh"; path: string }
  | { type: "restart"; identity: string | null }
  | { type: "ping" }
  | { type: "unregister" };

export type SubscriptionUpdate =
  | { event: JobEvent }
  | { end: true }
  | { error: ProblemInit }
  | { snapshot: Snapshot }
  | { loaded: true }
  | { answer: unknown; problem: ProblemInit | null };

export type HubMessage =
  | (SubscriptionUpdate & { id: number })
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
