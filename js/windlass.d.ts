/** Types of the Windlass client for browsers and Node. Durations in this file are milliseconds. */

import type {
  Attempt, BatchResult, BulkAction, BulkActionResult, CancelResult, Count, Diagnosis, EnqueuedJob,
  Failures, FailuresQuery, FieldProblem, Filter, Flow, FlowActionResult, FlowPage, FlowsQuery,
  Graph, Job, JobPage, JobSummary, Limit, NewJob, NewSchedule, Paused, Problem, Queue, Schedule,
  State, Stats, StatsQuery, SubmitResult, Task, Worker,
} from "./src/api-types.js";

export type * from "./src/api-types.js";

export interface Options {
  signal?: AbortSignal;
}

export interface CancelOptions extends Options {
  reason?: string;
}

/** Options of a job. A `requestId` is random by default. */
export interface EnqueueOptions extends Omit<NewJob, "task" | "arguments">, Options {}

export interface BatchOptions extends Options {
  /** Idempotency key of the batch. Each job's key is this key with its index. */
  requestId?: string;
}

/** Filter of a watched list: only the first page is watched. */
export type ListFilter = Omit<Filter, "cursor">;

/** State of a job on a watched list. `state` null: deleted, without the other fields. */
export interface Snapshot
  extends Pick<JobSummary, "id" | "seq" | "percent" | "task" | "queue" | "stage" | "phase"> {
  state: State | null;
  /** False when the job left the list. Other fields may then be of an earlier snapshot. */
  listed: boolean;
}

export interface WindlassOptions {
  /** Base URL of the server, with its mount path. Default in a page: the page's origin. */
  url?: string;
  /** An API key. Without one, requests send the cookies of the page's origin. */
  key?: string | null;
  fetch?: typeof fetch;
  /** Default: the console, without `debug`. */
  log?: Log;
  timers?: Timers;
  /** Milliseconds for one try of a request. Default: 30,000. */
  timeout?: number;
  /** Retries of an idempotent request, after 1, 2, 4 … seconds. Default: 3. */
  retries?: number;
  /** Reconnects of a broken stream. Default: 5 attempts, from 1,000 ms up to 30,000 ms. */
  backoff?: { attempts?: number; first?: number; cap?: number };
  /** Keepalive interval of the server, default 10,000. 2.5 silent intervals: a dead connection. */
  keepalive?: number;
  /** Events of a followed job buffered for later subscribers. Default: 512. */
  keep?: number;
}

export interface Log {
  debug(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
}

export interface Timers {
  now(): number;
  /** Wall clock, to detect that the machine slept. Default: `Date.now`. */
  wall?(): number;
  setTimeout(call: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
}

/** An event of a job's log. docs/reference/events.md lists the keys of `data` for each type. */
export interface JobEvent {
  id: string;
  seq: number;
  at: Date;
  type: string;
  jobId: string;
  correlationId: string | null;
  data: Record<string, any>;
  /** Whether it is the job's last event. */
  final: boolean;
}

/** `open`, or waiting `wait` ms before reconnect number `attempt`, because of `error`. */
export interface ConnectionState {
  open: boolean;
  attempt: number;
  wait: number;
  error: WindlassError | null;
}

export interface WatchOptions extends Options {
  onConnection?: (state: ConnectionState) => unknown;
  /** The subscription ended: a permanent error, or five failed attempts in a row. */
  onError?: (error: WindlassError) => unknown;
}

export interface EventsOptions extends Options {
  /** `seq` or `id` of the last known event. Default: 0, the whole log. */
  after?: string | number;
  /** Only events of these types, and always the last event. */
  types?: string[];
  onConnection?: (state: ConnectionState) => unknown;
}

export interface FollowOptions extends WatchOptions {
  after?: string | number;
  /** Every event, once, in order. */
  onEvent?: (event: JobEvent) => unknown;
  /** 0 to 100, never decreasing. */
  onProgress?: (percent: number, event: JobEvent) => unknown;
  onState?: (state: State, event: JobEvent) => unknown;
  /** Called with the last event, or null if the job ended before `after`. */
  onEnd?: (event: JobEvent | null) => unknown;
}

export interface LiveListOptions extends WatchOptions {
  /** The whole list was delivered: after subscribing, and after each reconnect. */
  onLoaded?: () => unknown;
}

/** Any number of jobs and lists on one connection, with unlimited reconnects. */
export interface LiveConnection {
  /** At most 100 jobs: beyond, the oldest subscriptions end with an error. */
  follow(id: string, options: FollowOptions): () => void;
  /** At most 20 lists, as for jobs. `listed` is false when a job has left the list. */
  list(
    filter: ListFilter, callback: (snapshot: Snapshot) => unknown, options?: LiveListOptions,
  ): () => void;
  /**
   * Calls back now and at each change. After a `permanent` error (401), the connection stays closed
   * until `restart()`; subscriptions then continue.
   */
  connection(callback: (state: ConnectionState) => unknown): () => void;
  /** Reconnect now, after the last events. */
  restart(): void;
  /** End all subscriptions. */
  close(): void;
}

export interface RequestOptions extends Options {
  query?: Query;
  body?: unknown;
  headers?: Record<string, string>;
  /** Whether the request may be sent twice. Always true for GET. */
  idempotent?: boolean;
}

export type Query = Record<string, any>;

/** Fields of a new WindlassError. */
export type ProblemInit =
  Partial<Problem> & { detail: string; permanent?: boolean; retryAfter?: number };

/** An error response of the server, or a connection failure (`status` 0). */
export declare class WindlassError extends Error {
  constructor(problem: ProblemInit, options?: ErrorOptions);
  type: string;
  title: string;
  detail: string;
  status: number;
  /** Machine-readable code: `not_found`, `conflict`, `connection`, `gave_up` … */
  code: string;
  advice: string;
  instance: string | null;
  fields: FieldProblem[];
  /** A retry would be pointless. */
  permanent: boolean;
  /** Seconds. */
  retryAfter: number;
}

export declare class Windlass {
  constructor(options?: WindlassOptions);

  /** Create a job. Retries use the same idempotency key, so they create no second job. */
  enqueue(
    task: string, args?: Record<string, unknown>, options?: EnqueueOptions,
  ): Promise<EnqueuedJob>;
  /** Create several jobs. Returns one result per job, in order; jobs fail independently. */
  batch(jobs: NewJob[], options?: BatchOptions): Promise<BatchResult[]>;
  /** Iterate over all matching jobs, newest first, page by page. */
  list(filter?: Filter, options?: Options): AsyncGenerator<JobSummary, void, void>;
  page(filter?: Filter, options?: Options): Promise<JobPage>;
  /** Count matching jobs, up to 10,000, among the newest 100,000. */
  count(filter?: Filter, options?: Options): Promise<Count>;
  /** Apply one action to all matching jobs, up to `filter.limit`; continue with `cursor`. */
  actions(action: BulkAction, options?: Options): Promise<BulkActionResult>;

  job(id: string): JobHandle;
  get(id: string, options?: Options): Promise<Job>;
  attempts(id: string, options?: Options): Promise<Attempt[]>;
  /** The dependency graph around a job: up to 200 jobs. */
  graph(id: string, options?: Options): Promise<Graph>;
  why(id: string, options?: Options): Promise<Diagnosis>;
  cancel(id: string, options?: CancelOptions): Promise<CancelResult>;
  submit(id: string, options?: Options): Promise<SubmitResult>;
  retry(id: string, options?: Options): Promise<EnqueuedJob>;
  resume(id: string, options?: Options): Promise<EnqueuedJob>;
  delete(id: string, options?: Options): Promise<void>;
  /** Wait until the job has ended, and return it. */
  wait(id: string, options?: Options): Promise<Job>;

  /** Iterate over the job's log and then its live events, until the last event. */
  events(id: string, options?: EventsOptions): AsyncGenerator<JobEvent, void, void>;
  /** The same with callbacks. Returns the unsubscribe function. */
  follow(id: string, options: FollowOptions): () => void;
  /** Follow up to 100 jobs on one connection, each after the given `seq`. */
  followMany(jobs: Record<string, string | number>, options: FollowOptions): () => void;
  /** Call back with the current state of each job of a list, and at each change. */
  watch(
    filter: ListFilter, callback: (snapshot: Snapshot) => unknown, options?: WatchOptions,
  ): () => void;
  live(): LiveConnection;

  /** Send a request to any path. Returns the decoded body, or null for 204. */
  request(method: string, path: string, options?: RequestOptions): Promise<any>;

  queues(options?: Options): Promise<Queue[]>;
  pauseQueue(name: string, options?: Options): Promise<Paused>;
  resumeQueue(name: string, options?: Options): Promise<Paused>;
  workers(options?: Options): Promise<Worker[]>;
  tasks(options?: Options): Promise<Task[]>;
  /** Top failures since a time (default: a day ago), among the last 2,000 failed jobs. */
  failures(query?: FailuresQuery, options?: Options): Promise<Failures>;
  /** Flows, newest first. */
  flows(query?: FlowsQuery, options?: Options): Promise<FlowPage>;
  flow(id: string, options?: Options & { limit?: number }): Promise<Flow>;
  cancelFlow(id: string, options?: CancelOptions): Promise<FlowActionResult>;
  /** Retry failed and canceled jobs and their dependents; succeeded jobs are kept. */
  retryFlow(id: string, options?: Options): Promise<FlowActionResult>;
  resumeFlow(id: string, options?: Options): Promise<FlowActionResult>;
  limits(options?: Options): Promise<Limit[]>;
  stats(query?: StatsQuery, options?: Options): Promise<Stats>;
  schedules(options?: Options): Promise<Schedule[]>;
  getSchedule(name: string, options?: Options): Promise<Schedule>;
  addSchedule(schedule: NewSchedule, options?: Options): Promise<Schedule>;
  pauseSchedule(name: string, options?: Options): Promise<Schedule>;
  resumeSchedule(name: string, options?: Options): Promise<Schedule>;
  runSchedule(name: string, options?: Options): Promise<EnqueuedJob>;
  deleteSchedule(name: string, options?: Options): Promise<void>;
}

/** Methods of the client bound to one job id. */
export interface JobHandle {
  readonly id: string;
  get(options?: Options): Promise<Job>;
  attempts(options?: Options): Promise<Attempt[]>;
  graph(options?: Options): Promise<Graph>;
  why(options?: Options): Promise<Diagnosis>;
  cancel(options?: CancelOptions): Promise<CancelResult>;
  submit(options?: Options): Promise<SubmitResult>;
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
  /** Null if the message has no id of its own. */
  id: string | null;
}

/** Parser of server-sent events, as in the HTML standard. */
export declare class SseParser {
  lastEventId: string;
  push(bytes: Uint8Array): (SseMessage | { comment: string })[];
}
