/**
 * Requests and responses of the HTTP API. Times are ISO 8601 strings. Durations are seconds, or
 * strings like "5m".
 */

export type State =
  | "created" | "queued" | "running" | "retrying" | "succeeded" | "failed" | "canceled";
export type Duration = number | string;

export interface Options {
  signal?: AbortSignal;
}

export interface CancelOptions extends Options {
  reason?: string;
}

/** Options of a job, in addition to its task and arguments. */
export interface JobOptions {
  queue?: string;
  priority?: number;
  delay?: Duration;
  hold?: boolean;
  expiresIn?: Duration;
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
  /** Idempotency key: at most one job per key. Random by default. */
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
  /** Idempotency key of the batch. Each job's key is this key with its index. */
  requestId?: string;
}

export interface NewSchedule extends JobOptions {
  name: string;
  task: string;
  arguments?: Record<string, unknown>;
  cron?: string;
  every?: Duration;
  tz?: string;
  missed?: "skip" | "last" | "all";
}

/** All filters must match: any value of `state`, `queue`, `task`, and all values of `tag`. */
export interface Filter {
  state?: State | State[];
  queue?: string | string[];
  task?: string | string[];
  tag?: string | string[];
  owner?: string;
  team?: string;
  /** The exact error code. */
  error?: string;
  /** Case-insensitive part of the task, a tag, or the error's code, type or message. */
  text?: string;
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

/** Filter of a watched list: only the first page is watched. */
export type ListFilter = Omit<Filter, "cursor">;

/** JSON form of a filter: fields with several values are arrays. */
export interface BulkActionFilter
  extends Omit<Filter, "state" | "queue" | "task" | "tag" | "cursor"> {
  /** Only these jobs, at most 200. */
  id?: string[];
  state?: State[];
  queue?: string[];
  task?: string[];
  tag?: string[];
}

export interface BulkAction {
  action: "submit" | "cancel" | "retry" | "resume" | "delete";
  filter: BulkActionFilter;
  reason?: string;
  cursor?: string | null;
}

export interface Count {
  count: number;
  /** `count` is a lower bound. */
  capped: boolean;
}

export interface BulkActionResult {
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

/** A job with its dependencies. */
export interface JobNode extends JobSummary {
  dependsOn: string[];
}

/** Dependency graph, nearest jobs first. `capped`: the graph has more jobs. */
export interface Graph {
  jobs: JobNode[];
  capped: boolean;
}

export interface Job extends JobSummary {
  arguments: any;
  result: any;
  lastError: JobError | null;
  failureDetails: {
    summary: string;
    stage: string | null;
    category: string;
    advice: string;
  } | null;
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
  /** Some fields are encrypted with a key that the server does not have. */
  sealed: boolean;
}

export interface EnqueuedJob extends Job {
  /** The job existed already. */
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
  /** Cursor of the next page; null on the last page. */
  cursor: string | null;
}

export interface BatchResult {
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

export interface Diagnosis {
  id: string;
  state: State;
  reasons: { code: string; text: string; at: string | null; advice: string | null }[];
}

export interface SubmitResult {
  id: string;
  state: State;
}

export interface CancelResult {
  id: string;
  /** `requested`: the worker is notified and the job will end as canceled. Else its final state. */
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
  unresponsive: boolean;
}

export interface Task {
  name: string;
  description: string;
  aliases: string[];
  queue: string;
  priority: number;
  maxRetries: number;
  timeout: number | null;
  /** A JSON schema, and so is `result`. */
  arguments: Record<string, any>;
  result: Record<string, any>;
}

export interface FlowSummary {
  id: string;
  state: State;
  percent: number;
  counts: Partial<Record<State, number>>;
  /** All fields cover only the newest 1,000 jobs. */
  capped: boolean;
  createdAt: string;
  endedAt: string | null;
}

export interface FlowPage {
  flows: FlowSummary[];
  cursor: string | null;
}

export interface Flow extends FlowSummary {
  jobs: JobNode[];
  /** A job has more than 20 dependencies; `dependsOn` holds the first 20. */
  moreParents: boolean;
}

export interface LimitSettings {
  concurrency: number | null;
  starts: number | null;
  /** Seconds. */
  period: number | null;
}

export interface Limit {
  /** `queue:…`, `task:…`, or `key:…` for each key of a task. */
  name: string;
  limit: LimitSettings;
  declared: LimitSettings | null;
  override: LimitSettings | null;
  /** Jobs queued or running; null for a limit per key. */
  inUse: number | null;
  waiting: number | null;
  /** `waiting` is a lower bound. */
  capped: boolean;
}

/** Failed jobs with the same task and error; type, message and job are of the latest. */
export interface FailureGroup {
  /** Stable between requests. */
  key: string;
  task: string;
  code: string;
  type: string | null;
  /** First line of the message. */
  message: string | null;
  count: number;
  firstAt: string;
  lastAt: string;
  jobId: string;
  /** All jobs of the group, if it was requested by its key. */
  jobIds: string[] | null;
}

export interface Failures {
  since: string;
  groups: FailureGroup[];
  /** Number of jobs grouped; `capped`: more jobs failed. */
  scanned: number;
  capped: boolean;
}

export interface FlowActionResult {
  id: string;
  /** Number of jobs affected. */
  jobs: number;
}

export interface Schedule {
  name: string;
  task: string;
  queue: string;
  arguments: any;
  /** The arguments are encrypted with a key that the server does not have. */
  sealed: boolean;
  cron: string | null;
  every: number | null;
  tz: string;
  missed: "skip" | "last" | "all";
  paused: boolean;
  declared: boolean;
  lastTick: string | null;
  /** Null if that job was deleted. */
  lastJobId: string | null;
  nextTick: string | null;
  /** The next five; none while paused. */
  nextTicks: string[];
}

export interface StatsQuery {
  since?: string | Date;
  until?: string | Date;
  step?: number;
  /** Grouping: per queue, per task, or one total. */
  by?: "queue" | "task" | "none";
}

export interface Stats {
  since: string;
  until: string;
  step: number;
  rows: {
    at: string;
    /** Null: all. */
    queue: string | null;
    task: string | null;
    outcome: State;
    count: number;
    meanWait: number;
    meanRun: number;
  }[];
}

/** State of a job on a watched list. `state` null: deleted, without the other fields. */
export interface Snapshot {
  id: string;
  seq: number;
  state: State | null;
  percent: number;
  task: string;
  queue: string;
  stage: string | null;
  phase: string | null;
  /** False when the job left the list. Other fields may then be of an earlier snapshot. */
  listed: boolean;
}

/** Body of an error response (problem+json). */
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
