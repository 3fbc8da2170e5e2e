// What the HTTP API answers, as far as the page reads it.

export interface Metadata {
  namespace: string;
  name: string;
  generation?: number;
  labels?: Record<string, string>;
}

export interface Condition {
  type: string;
  status: string;
  reason: string;
  message: string;
  lastTransitionTime: string;
  observedGeneration?: number;
}

export interface Selector {
  matchLabels?: Record<string, string>;
  matchExpressions?: { key: string; operator: string; values?: string[] }[];
}

export interface ClusterSet {
  names?: string[];
  selector?: Selector;
  reporting?: { minClusters?: number };
  freeze?: boolean;
}

export interface Waiting {
  reason: string;
  message: string;
  count: number;
  until?: string;
  clusters?: string[];
}

/** A cluster that need not be healthy now. */
export interface Excused {
  clusterName: string;
  reason: string;
  until?: string;
}

/** Clusters that wait for the next revision; the first ten. */
export interface Newcomers {
  count: number;
  clusters: string[];
}

/** Clusters that need not be healthy now, by their numbers. */
export interface ExcusedClusters {
  reason: string;
  clusters: number[];
}

export type Counts = Partial<Record<string, number>>;

export interface HistoryEntry {
  revision: string;
  startedAt: string;
  appliedAt?: string;
  healthyAt?: string;
}

export interface PackageSpec {
  package: { source: string; namespace?: string; name: string };
  revision?: string;
  revisionFrom?: unknown;
  clusters?: ClusterSet;
  staleAfter?: string;
  managedBy?: string;
}

export interface StageStatus {
  stage: string;
  state: string;
  message: string;
  healthyAt?: string;
}

export interface PackageStatus {
  observedGeneration?: number;
  asOf?: string;
  revision?: string;
  lastHealthyRevision?: string;
  clusters?: Counts;
  excused?: Excused[];
  history?: HistoryEntry[];
  trace?: StageStatus[];
  conditions?: Condition[];
}

export interface PackageObject {
  metadata: Metadata;
  spec: PackageSpec;
  status: PackageStatus | null;
  wanted: string | null;
  revisions: string[];
  excused?: ExcusedClusters[];
}

/** Count, number of the state or -1, number of the applied revision or -1. */
export type Run = [number, number, number];

/** Number of the cluster, of the state or -1, of the applied revision or -1. */
export type CellChange = [number, number, number];

export interface Cluster {
  name: string;
  labels?: Record<string, string>;
}

export interface GateSpec {
  fleetPackageRef: { name: string };
  revision: string;
  clusters: ClusterSet;
  require?: 'Healthy' | 'Applied';
  minHealthy?: number | string;
  maxFailures?: number | string;
  minSuccessTime?: string;
  progressDeadline?: string;
  requireStage?: string;
  dependsOn?: { name: string }[];
  checks?: { name: string; query?: string; template?: string; min?: number; max?: number; window?: string }[];
  override?: { state: 'Open' | 'Closed'; reason: string; until?: string };
}

export interface GateStatus {
  observedGeneration?: number;
  asOf?: string;
  startedAt?: string;
  since?: string;
  revision?: string;
  healthy?: string;
  clusters?: Counts;
  excused?: Excused[];
  members?: { of: string; since: string; clusters: string[] };
  newcomers?: Newcomers;
  waitingFor?: Waiting[];
  checks?: { name: string; state: 'Pending' | 'Passed' | 'Failed'; value?: string; message?: string }[];
  conditions?: Condition[];
}

export interface GateVerdict {
  open: boolean;
  state: string;
  reason: string;
  message: string;
  revision?: string;
  fingerprint?: string;
  generation?: number;
  observedGeneration?: number;
  asOf?: string;
  ageSeconds?: number;
  staleAfterSeconds?: number;
  since?: string;
  healthy?: string;
  clusters?: Counts;
  waitingFor?: Waiting[];
}

export interface Gate {
  metadata: Metadata;
  spec: GateSpec;
  status: GateStatus | null;
  verdict: GateVerdict;
}

export interface WaveStatus {
  name: string;
  state: string;
  gate?: string;
  clusters: number;
  admitted: number;
  startedAt?: string;
  openedAt?: string;
  message?: string;
}

export interface PreviousRollout {
  revision: string;
  startedAt?: string;
  completedAt?: string;
  replacedAt: string;
  admitted?: string;
  wave?: string;
  message?: string;
}

export interface RolloutStatus {
  observedGeneration?: number;
  asOf?: string;
  verdictSince?: string;
  revision?: string;
  fingerprint?: string;
  startedAt?: string;
  completedAt?: string;
  wave?: string;
  admitted?: string;
  clusters?: { total: number; admitted: number; leftOut: number };
  waves?: WaveStatus[];
  leftOut?: string[];
  previous?: PreviousRollout;
  lastCompletedRevision?: string;
  recommendedRevision?: string;
  conditions?: Condition[];
}

/** A FleetRollout. */
export interface Rollout {
  metadata: Metadata;
  /** Name of its FleetPackage; left out where the spec cannot be read. */
  package?: string;
  paused: boolean;
  ready: boolean;
  stalled: boolean;
  reason: string;
  message: string;
  status?: RolloutStatus;
}

/** A cluster of a wave; what the package does there is left out where nothing is known. */
export interface Member {
  clusterName: string;
  /** Since when it may have the revision. */
  admitted?: string;
  row?: Row;
  asOf?: string | null;
  message?: string;
}

export interface RolloutDetail extends Rollout {
  clusters?: Member[];
  more?: boolean;
}

/** An object as it is sent: what is null may be left out, and so is a spec that cannot be read. */
type Sent<T extends { spec: unknown; status: unknown }> = Omit<T, 'spec' | 'status' | 'wanted'> & {
  spec?: T['spec'] | null;
  status?: T['status'];
  wanted?: string | null;
};

export type SentPackage = Sent<PackageObject>;
export type SentGate = Sent<Gate>;

/** Empty lists may be left out. */
export interface Snapshot {
  cursor: string;
  asOf?: string | null;
  evaluatedAt?: string | null;
  silent?: string | null;
  states?: string[];
  clusters?: Cluster[];
  packages?: (SentPackage & { cells: Run[] })[];
  gates?: SentGate[];
  rollouts?: Rollout[];
}

export interface Changes {
  cursor: string;
  asOf?: string | null;
  evaluatedAt?: string | null;
  silent?: string | null;
  clusters?: (Cluster & { index: number })[];
  packages?: (SentPackage & { changes?: CellChange[] })[];
  gates?: SentGate[];
  rollouts?: Rollout[];
  gone?: { packages?: string[]; gates?: string[]; rollouts?: string[] };
}

export interface Row {
  clusterName: string;
  status: string;
  state: string;
  reason: string;
  desiredRevision?: string;
  appliedRevision?: string;
  healthyRevision?: string;
  lastTransitionTime?: string;
  /** The cluster whose exporter says so, where that is another one. */
  reportedBy?: string;
  /** Why the cluster need not be healthy, where it is excused. */
  excused?: string;
}

export interface PackageDetail {
  metadata: Metadata;
  spec: PackageSpec;
  status: PackageStatus | null;
  wanted: string | null;
  adoption?: { revision: string; points: [string, number][] };
  clusters: { row: Row; asOf: string | null; message: string }[];
  more?: boolean;
}

export interface ClusterDetail {
  name: string;
  labels?: Record<string, string>;
  packages: { namespace: string; name: string; row: Row; asOf: string | null; message: string }[];
}
