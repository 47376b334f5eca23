/** The Windlass client for browsers and Node. Lengths of time here are milliseconds. */

import type {
  Action, ActionAnswer, Attempt, BatchAnswer, BatchOptions, CancelAnswer, CancelOptions, Count,
  EnqueuedJob, EnqueueOptions, Failures, FieldProblem, Filter, Flow, FlowActed, FlowPage, Graph,
  Job, JobPage, JobSummary, Limit, ListFilter, Moved, NewJob, NewSchedule, Options, Problem, Queue,
  Schedule, Snapshot, State, Stats, StatsAsked, Task, Why, Worker,
} from "./src/wire.js";

export type * from "./src/wire.js";

export interface WindlassOptions {
  /** Where the server is, with the path that it is mounted at; in a page, the page's own origin. */
  url?: string;
  /** An API key. Without one, the cookies of the page's own origin are sent. */
  key?: string | null;
  fetch?: typeof fetch;
  /** The console, without `debug`, if not given. */
  log?: Log;
  timers?: Timers;
  /** Milliseconds for one try of a request: 30,000. */
  timeout?: number;
  /** How often a request that may be repeated is, after 1, 2, 4 … seconds: 3. */
  retries?: number;
  /** When a broken stream is asked for again: 5 attempts, from 1,000 ms on, at most 30,000 ms. */
  backoff?: { attempts?: number; first?: number; cap?: number };
  /** Milliseconds between the server's keepalives, 10,000. 2.5 of them in silence: a dead line. */
  keepalive?: number;
  /** Events of a followed job that those who come later find here: 512. */
  keep?: number;
}

export interface Log {
  debug(...said: unknown[]): void;
  warn(...said: unknown[]): void;
  error(...said: unknown[]): void;
}

export interface Timers {
  now(): number;
  /** The time of day, by which a machine's sleep is noticed: `Date.now`, if not given. */
  wall?(): number;
  setTimeout(call: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
}

/** One line of a job's log. The keys of `data` are those of its type: docs/reference/events.md. */
export interface JobEvent {
  id: string;
  seq: number;
  at: Date;
  type: string;
  jobId: string;
  correlationId: string | null;
  data: Record<string, any>;
  /** Nothing follows. */
  final: boolean;
}

/** `open`, or waiting for `wait` ms to ask again, for the `attempt`-th time, because of `error`. */
export interface ConnectionState {
  open: boolean;
  attempt: number;
  wait: number;
  error: WindlassError | null;
}

export interface WatchOptions extends Options {
  onConnection?: (state: ConnectionState) => unknown;
  /** It is over: the server refuses, or five attempts in a row brought nothing. */
  onError?: (error: WindlassError) => unknown;
}

export interface EventsOptions extends Options {
  /** The last event that is known, by its `seq` or `id`; 0, the whole log, if not given. */
  after?: string | number;
  /** Only events of these types; the last one always comes. */
  types?: string[];
  onConnection?: (state: ConnectionState) => unknown;
}

export interface FollowOptions extends WatchOptions {
  after?: string | number;
  /** Every event, once, in order. */
  onEvent?: (event: JobEvent) => unknown;
  /** 0 to 100, never less than before. */
  onProgress?: (percent: number, event: JobEvent) => unknown;
  onState?: (state: State, event: JobEvent) => unknown;
  /** With the last event; null if the job had ended before `after`. */
  onEnd?: (event: JobEvent | null) => unknown;
}

export interface LiveListOptions extends WatchOptions {
  /** All jobs of the list were told: at first, and after each connection that was lost. */
  onWhole?: () => unknown;
}

/** Any number of jobs and lists on one connection, which comes back for as long as it is wanted. */
export interface Live {
  /** Of more than 100 jobs the ones asked for last are followed; the others get an error. */
  follow(id: string, options: FollowOptions): () => void;
  /** Of more than 20 lists the ones asked for last; `listed` is false when a job has left. */
  list(
    filter: ListFilter, callback: (snapshot: Snapshot) => unknown, options?: LiveListOptions,
  ): () => void;
  /**
   * Now and at each change. With an error that is `permanent` (401), nothing is asked before
   * `restart()`; whoever listens goes on then.
   */
  connection(callback: (state: ConnectionState) => unknown): () => void;
  /** Asks anew, now, from where it was. */
  restart(): void;
  /** Nobody hears anything more. */
  close(): void;
}

export interface Asked extends Options {
  query?: Query;
  body?: unknown;
  headers?: Record<string, string>;
  /** To do it twice is the same as once; so is every GET. */
  repeat?: boolean;
}

export type Query = Record<string, any>;

/** As much of a problem as is known. */
export type Told =
  Partial<Problem> & { detail: string; permanent?: boolean; retryAfter?: number };

/** What the server refuses, or what happened on the way to it (`status` 0). */
export declare class WindlassError extends Error {
  constructor(problem: Told, options?: ErrorOptions);
  type: string;
  title: string;
  detail: string;
  status: number;
  /** A word for programs: `not_found`, `conflict`, `connection`, `gave_up` … */
  code: string;
  advice: string;
  instance: string | null;
  fields: FieldProblem[];
  /** To ask again would be pointless. */
  permanent: boolean;
  /** Seconds. */
  retryAfter: number;
}

export declare class Windlass {
  constructor(options?: WindlassOptions);

  /** Sent again while there is no answer, with the same key: one job, whatever happens. */
  enqueue(
    task: string, args?: Record<string, unknown>, options?: EnqueueOptions,
  ): Promise<EnqueuedJob>;
  /** An answer for each job, in order; one that is wrong does not concern the others. */
  batch(jobs: NewJob[], options?: BatchOptions): Promise<BatchAnswer[]>;
  /** All jobs that match, the newest first, page by page. */
  list(filter?: Filter, options?: Options): AsyncGenerator<JobSummary, void, void>;
  page(filter?: Filter, options?: Options): Promise<JobPage>;
  /** How many match: up to 10,000, looked for among the newest 100,000. */
  count(filter?: Filter, options?: Options): Promise<Count>;
  /** The same verb for all that match, up to `filter.limit`; `cursor` leads on. */
  actions(action: Action, options?: Options): Promise<ActionAnswer>;

  job(id: string): JobHandle;
  get(id: string, options?: Options): Promise<Job>;
  attempts(id: string, options?: Options): Promise<Attempt[]>;
  /** The jobs that it depends on, those that depend on it, and on from there: up to 200. */
  graph(id: string, options?: Options): Promise<Graph>;
  why(id: string, options?: Options): Promise<Why>;
  cancel(id: string, options?: CancelOptions): Promise<CancelAnswer>;
  submit(id: string, options?: Options): Promise<Moved>;
  retry(id: string, options?: Options): Promise<EnqueuedJob>;
  resume(id: string, options?: Options): Promise<EnqueuedJob>;
  delete(id: string, options?: Options): Promise<void>;
  /** The job, when it has ended, however it did. */
  wait(id: string, options?: Options): Promise<Job>;

  /** The log of a job, then what happens, until the last event. */
  events(id: string, options?: EventsOptions): AsyncGenerator<JobEvent, void, void>;
  /** The same by callbacks. Returns what ends it. */
  follow(id: string, options: FollowOptions): () => void;
  /** Up to 100 jobs on one connection, each beyond the `seq` that is given. */
  followMany(jobs: Record<string, string | number>, options: FollowOptions): () => void;
  /** Where the jobs of a list stand, now and whenever that changes. */
  watch(
    filter: ListFilter, callback: (snapshot: Snapshot) => unknown, options?: WatchOptions,
  ): () => void;
  live(): Live;

  /** Any address of the server; the answer is decoded, null if there is none. */
  request(method: string, path: string, asked?: Asked): Promise<any>;

  queues(options?: Options): Promise<Queue[]>;
  pauseQueue(name: string, options?: Options): Promise<{ name: string; paused: boolean }>;
  resumeQueue(name: string, options?: Options): Promise<{ name: string; paused: boolean }>;
  workers(options?: Options): Promise<Worker[]>;
  tasks(options?: Options): Promise<Task[]>;
  /** What failed most since then (a day ago): the last 2,000 jobs that failed, by task and error. */
  failures(
    asked?: { since?: string | Date; limit?: number; group?: string }, options?: Options,
  ): Promise<Failures>;
  /** Flows, the newest first. */
  flows(asked?: { limit?: number; cursor?: string | null }, options?: Options): Promise<FlowPage>;
  flow(id: string, options?: Options & { limit?: number }): Promise<Flow>;
  cancelFlow(id: string, options?: CancelOptions): Promise<FlowActed>;
  /** What failed or was canceled, and what depends on it; what succeeded stands. */
  retryFlow(id: string, options?: Options): Promise<FlowActed>;
  resumeFlow(id: string, options?: Options): Promise<FlowActed>;
  limits(options?: Options): Promise<Limit[]>;
  stats(asked?: StatsAsked, options?: Options): Promise<Stats>;
  schedules(options?: Options): Promise<Schedule[]>;
  getSchedule(name: string, options?: Options): Promise<Schedule>;
  addSchedule(asked: NewSchedule, options?: Options): Promise<Schedule>;
  pauseSchedule(name: string, options?: Options): Promise<Schedule>;
  resumeSchedule(name: string, options?: Options): Promise<Schedule>;
  runSchedule(name: string, options?: Options): Promise<EnqueuedJob>;
  deleteSchedule(name: string, options?: Options): Promise<void>;
}

/** One job, by its id. */
export interface JobHandle {
  readonly id: string;
  get(options?: Options): Promise<Job>;
  attempts(options?: Options): Promise<Attempt[]>;
  graph(options?: Options): Promise<Graph>;
  why(options?: Options): Promise<Why>;
  cancel(options?: CancelOptions): Promise<CancelAnswer>;
  submit(options?: Options): Promise<Moved>;
  retry(options?: Options): Promise<EnqueuedJob>;
  resume(options?: Options): Promise<EnqueuedJob>;
  delete(options?: Options): Promise<void>;
  wait(options?: Options): Promise<Job>;
  events(options?: EventsOptions): AsyncGenerator<JobEvent, void, void>;
  follow(options: FollowOptions): () => void;
}

export interface SseMessage {
  type: string;
  data: string;
  /** Its own; null if it has none. */
  id: string | null;
}

/** Server-sent events from bytes, as the HTML standard reads them. */
export declare class SseParser {
  lastEventId: string;
  push(bytes: Uint8Array): (SseMessage | { comment: string })[];
}
