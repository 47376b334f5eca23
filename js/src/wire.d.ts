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

/** A list is watched as its first page. */
export type ListFilter = Omit<Filter, "cursor">;

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
