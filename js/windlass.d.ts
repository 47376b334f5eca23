/**
 * The Windlass client for browsers and Node. Times are ISO texts, as the server sends them; only an
 * event's `at` is a Date. Lengths of time that the server is told are seconds, or words like "5m";
 * those of this client itself are milliseconds.
 */

export type State =
  | "created" | "queued" | "running" | "retrying" | "succeeded" | "failed" | "canceled";
export type Length = number | string;

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
  /** Milliseconds between the server's keepalives, 10,000. Silence for 2.5 of them is a dead line. */
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
  setTimeout(call: () => void, ms: number): unknown;
  clearTimeout(timer: unknown): void;
}

export interface Options {
  signal?: AbortSignal;
}

export interface CancelOptions extends Options {
  reason?: string;
}

/** What a job may be asked to be, beside its task and arguments. */
export interface JobOptions {
  queue?: string;
  priority?: number;
  delay?: Length;
  hold?: boolean;
  expiresIn?: Length;
  uniqueKey?: string;
  debounce?: boolean;
  limitKey?: string;
  owner?: string;
  team?: string;
  tags?: string[];
  headers?: Record<string, string>;
}

export interface OneJobOptions extends JobOptions {
  id?: string;
  runAt?: string | Date;
  /** At most one job for each; made at random if not given. */
  requestId?: string;
  dependsOn?: string[];
  onParent?: "cancel" | "fail" | "run";
}

export interface EnqueueOptions extends OneJobOptions, Options {}

export interface NewJob extends OneJobOptions {
  task: string;
  arguments?: Record<string, unknown>;
}

export interface BatchOptions extends Options {
  /** Counts for each job of the batch, with its place in it. */
  requestId?: string;
}

export interface NewSchedule extends JobOptions {
  name: string;
  task: string;
  arguments?: Record<string, unknown>;
  cron?: string;
  every?: Length;
  tz?: string;
  missed?: "skip" | "last" | "all";
}

/** Every one narrows; of several values of `state`, `queue`, `task` any, of `tag` all must fit. */
export interface Filter {
  state?: State | State[];
  queue?: string | string[];
  task?: string | string[];
  tag?: string | string[];
  owner?: string;
  team?: string;
  error?: string;
  worker?: string;
  requestId?: string;
  uniqueKey?: string;
  retryOf?: string;
  flowId?: string;
  createdFrom?: string | Date;
  createdTo?: string | Date;
  limit?: number;
  cursor?: string | null;
}

/** As in JSON: what may be several is a list. */
export interface ActionFilter
  extends Omit<Filter, "state" | "queue" | "task" | "tag" | "cursor"> {
  state?: State[];
  queue?: string[];
  task?: string[];
  tag?: string[];
}

export interface Action {
  action: "submit" | "cancel" | "retry" | "resume" | "delete";
  filter: ActionFilter;
  reason?: string;
  cursor?: string | null;
}

export interface ActionAnswer {
  matched: number;
  done: number;
  refused: { id: string; code: string; detail: string }[];
  cursor: string | null;
}

export interface JobSummary {
  id: string;
  task: string;
  queue: string;
  state: State;
  percent: number;
  stage: string | null;
  phase: string | null;
  attempt: number;
  retryCount: number;
  crashCount: number;
  priority: number;
  held: boolean;
  waitingFor: number;
  limitKey: string | null;
  gate: string | null;
  worker: string | null;
  owner: string;
  team: string | null;
  tags: string[];
  errorCode: string | null;
  retryOf: string | null;
  retriedAs: string | null;
  flowId: string | null;
  cancelRequested: boolean;
  createdAt: string;
  queuedAt: string | null;
  firstStartedAt: string | null;
  startedAt: string | null;
  endedAt: string | null;
  updatedAt: string;
  dueAt: string | null;
  expiresAt: string | null;
  seq: number;
}

export interface Job extends JobSummary {
  arguments: any;
  result: any;
  lastError: JobError | null;
  failureDetails: { what: string; stage: string | null; sort: string; advice: string } | null;
  headers: Record<string, string>;
  correlationId: string;
  requestId: string | null;
  uniqueKey: string | null;
  onParent: "cancel" | "fail" | "run";
  completedAt: string | null;
  failedAt: string | null;
  canceledAt: string | null;
  cancelBy: string | null;
  cancelReason: string | null;
  canResume: boolean;
  lastCompletedStep: string | null;
  /** Some of it was written with a key that the server does not have. */
  sealed: boolean;
}

export interface EnqueuedJob extends Job {
  /** It was there before. */
  duplicate: boolean;
}

export interface JobError {
  code: string;
  type: string | null;
  message: string | null;
  errorType: "RETRYABLE" | "TERMINAL";
  step: string | null;
  attempt: number;
  at: string | null;
  traceback: string | null;
}

export interface JobPage {
  jobs: JobSummary[];
  /** Leads to the next page; null is the end. */
  cursor: string | null;
}

export interface BatchAnswer {
  status: "created" | "duplicate" | "conflict" | "refused";
  job: JobSummary | null;
  problem: Problem | null;
}

export interface Attempt {
  number: number;
  worker: string | null;
  queuedAt: string;
  startedAt: string;
  endedAt: string | null;
  outcome: string | null;
  error: JobError | null;
  delay: number | null;
  percent: number;
  stage: string | null;
}

export interface Why {
  id: string;
  state: State;
  reasons: { because: string; text: string; at: string | null; advice: string | null }[];
}

export interface Moved {
  id: string;
  state: State;
}

export interface CancelAnswer {
  id: string;
  /** `requested`: its worker is told, and the cancel will win. Else how the job has ended. */
  status: "requested" | "canceled" | "succeeded" | "failed";
  cleanupScheduled: boolean;
}

export interface Queue {
  name: string;
  paused: boolean;
  counts: Partial<Record<State, number>>;
  capped: State[];
  oldestQueuedAt: string | null;
  oldestAge: number | null;
  perMinute: {
    minutes: number;
    started: number;
    succeeded: number;
    failed: number;
    retried: number;
    canceled: number;
    meanWait: number | null;
    meanRun: number | null;
  };
}

export interface Worker {
  name: string;
  host: string;
  pid: number;
  version: string;
  queues: Record<string, number>;
  tasks: string[];
  startedAt: string;
  seenAt: string;
  lastClaimAt: string | null;
  running: number;
  free: number;
  stopping: boolean;
  deaf: boolean;
}

export interface Task {
  name: string;
  aliases: string[];
  queue: string;
  priority: number;
  maxRetries: number;
  timeout: number | null;
  /** A JSON schema, and so is `result`. */
  arguments: Record<string, any>;
  result: Record<string, any>;
}

export interface Flow {
  id: string;
  state: State;
  percent: number;
  counts: Partial<Record<State, number>>;
  createdAt: string;
  endedAt: string | null;
  jobs: (JobSummary & { dependsOn: string[] })[];
}

export interface Schedule {
  name: string;
  task: string;
  cron: string | null;
  every: number | null;
  tz: string;
  missed: "skip" | "last" | "all";
  paused: boolean;
  declared: boolean;
  lastTick: string | null;
  nextTick: string | null;
}

export interface StatsAsked {
  since?: string | Date;
  until?: string | Date;
  step?: number;
}

export interface Stats {
  since: string;
  until: string;
  step: number;
  lines: {
    at: string;
    queue: string;
    task: string;
    outcome: State;
    count: number;
    meanWait: number;
    meanRun: number;
  }[];
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

/** Where a job of a watched list stands; `state` null: it was deleted, and the rest is missing. */
export interface Snapshot {
  id: string;
  seq: number;
  state: State | null;
  percent: number;
  task: string;
  queue: string;
  stage: string | null;
  phase: string | null;
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

/** The server's problem+json. */
export interface Problem {
  type: string;
  title: string;
  status: number;
  detail: string;
  instance?: string | null;
  code: string;
  advice: string;
  errors?: FieldProblem[] | null;
}

export interface FieldProblem {
  field: string;
  message: string;
}

export type Query = Record<string, any>;

/** What the server refuses, or what happened on the way to it (`status` 0). */
export declare class WindlassError extends Error {
  constructor(
    problem: Partial<Problem> & { detail: string; permanent?: boolean; retryAfter?: number },
    options?: ErrorOptions,
  );
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
  /** The same verb for all that match, up to `filter.limit`; `cursor` leads on. */
  actions(action: Action, options?: Options): Promise<ActionAnswer>;

  job(id: string): JobHandle;
  get(id: string, options?: Options): Promise<Job>;
  attempts(id: string, options?: Options): Promise<Attempt[]>;
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
    filter: Filter, callback: (snapshot: Snapshot) => unknown, options?: WatchOptions,
  ): () => void;

  queues(options?: Options): Promise<Queue[]>;
  pauseQueue(name: string, options?: Options): Promise<{ name: string; paused: boolean }>;
  resumeQueue(name: string, options?: Options): Promise<{ name: string; paused: boolean }>;
  workers(options?: Options): Promise<Worker[]>;
  tasks(options?: Options): Promise<Task[]>;
  flow(id: string, options?: Options & { limit?: number }): Promise<Flow>;
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
