/**
 * What the server is asked, and what it answers. Times are ISO texts, as they come; lengths of
 * time are seconds, or words like "5m".
 */

export type State =
  | "created" | "queued" | "running" | "retrying" | "succeeded" | "failed" | "canceled";
export type Length = number | string;

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
  /** The code of its error, whole. */
  error?: string;
  /** Part of its task, a tag, or its error's code, type or message, in capitals or not. */
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

/** A list is watched as its first page. */
export type ListFilter = Omit<Filter, "cursor">;

/** As in JSON: what may be several is a list. */
export interface ActionFilter
  extends Omit<Filter, "state" | "queue" | "task" | "tag" | "cursor"> {
  /** Of these jobs only, at most 200 of them. */
  id?: string[];
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

export interface Count {
  count: number;
  /** There are at least so many. */
  capped: boolean;
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

/** A job and those that it waits or waited for. */
export interface JobNode extends JobSummary {
  dependsOn: string[];
}

/** The nearest jobs first, and which of these each depends on; if `capped`, there are more. */
export interface Graph {
  jobs: JobNode[];
  capped: boolean;
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
  about: string;
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
  /** All of it is of the newest 1,000 jobs. */
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
  /** A job of these depends on more than the first 20, which `dependsOn` names. */
  moreParents: boolean;
}

export interface LimitFacts {
  concurrency: number | null;
  starts: number | null;
  /** Seconds. */
  period: number | null;
}

export interface Limit {
  /** `queue:…`, `task:…`, or `key:…` for each key of a task. */
  name: string;
  limit: LimitFacts;
  declared: LimitFacts | null;
  given: LimitFacts | null;
  /** Jobs in line or running; null for a limit per key. */
  holding: number | null;
  waiting: number | null;
  /** At least so many wait. */
  capped: boolean;
}

/** Jobs of one task that failed alike; type, message and job are those of the last. */
export interface FailureGroup {
  /** The same whenever it is asked for. */
  key: string;
  task: string;
  code: string;
  type: string | null;
  /** Its first line. */
  message: string | null;
  count: number;
  firstAt: string;
  lastAt: string;
  jobId: string;
  /** All of its jobs, where it was asked for by its key. */
  jobIds: string[] | null;
}

export interface Failures {
  since: string;
  groups: FailureGroup[];
  /** So many jobs were grouped; if it is `capped`, more had failed. */
  lookedAt: number;
  capped: boolean;
}

export interface FlowActed {
  id: string;
  /** How many of its jobs that concerned. */
  jobs: number;
}

export interface Schedule {
  name: string;
  task: string;
  queue: string;
  arguments: any;
  /** The arguments were written with a key that the server does not hold. */
  sealed: boolean;
  cron: string | null;
  every: number | null;
  tz: string;
  missed: "skip" | "last" | "all";
  paused: boolean;
  declared: boolean;
  lastTick: string | null;
  /** Null if that job is gone. */
  lastJobId: string | null;
  nextTick: string | null;
  /** Five; none while it is paused. */
  nextTicks: string[];
}

export interface StatsAsked {
  since?: string | Date;
  until?: string | Date;
  step?: number;
  /** Sum up all tasks of a queue, all queues of a task, or all of both. */
  by?: "queue" | "task" | "none";
}

export interface Stats {
  since: string;
  until: string;
  step: number;
  lines: {
    at: string;
    /** Null stands for all. */
    queue: string | null;
    task: string | null;
    outcome: State;
    count: number;
    meanWait: number;
    meanRun: number;
  }[];
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
  /** False when it has left the list; if it did while the line was broken, the rest is of before. */
  listed: boolean;
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
