// The server's answers. Addresses are relative: TensorBoard may be behind a proxy or under a prefix.
import type {Domain, Status, Value} from './model';

export type State = 'running' | 'finished' | 'ended early' | 'driver gone' | 'unknown';

export interface Facts {
  name: string;
  error?: string;
  title: string;
  description: string;
  call: string;
  algorithm: Record<string, unknown>;
  settings: Record<string, unknown>;
  direction: '' | 'max' | 'min';
  objectives: Record<string, 'max' | 'min'>;
  created: number;
  folder: string;
  state: State;
  problem: string;
  objective: string | null;
  total: number;
  counts: {done: number; failed: number; stopped?: number; cancelled?: number; running?: number};
  best: {trial: number; value: number; python: string} | null;
  front?: number[];
  target?: number | null;
  slots?: number;
  left?: number | null;
  began?: number | null;
  last?: number | null;
  ended: number | null;
}

export interface Answer extends Facts {
  mark: string;
  whole: boolean;
  columns: {
    id: number[];
    status: Status[];
    value: (number | null)[];
    seconds: (number | null)[];
    generation: (number | null)[];
    parent: (number | null)[];
    attempt: number[];
    slots: string[][];
    start: number[];
    end: (number | null)[];
    why: (string | null)[];
  };
  params: Record<string, (Value | null)[]>;
  metrics: Record<string, (number | null)[]>;
  lost: [trial: number, number: number, slots: string[], start: number, end: number, why: string][];
  slot_events: [at: number, slot: string, what: string, text: string][];
  selections: [trial: number, accepted: boolean, holder: number | null][];
  acquisitions: [trial: number, value: number][];
  space?: Record<string, Domain>;
}

export interface Attempt {
  number: number;
  slots: string[];
  start: number;
  end: number | null;
  ending: string;
  why: string;
}

export interface TrialPage {
  trial: number;
  status: Status;
  params: [string, Value][];
  python: string;
  generation: number | null;
  parent: number | null;
  value: number | null;
  seconds: number | null;
  reason?: string;
  metrics: [string, number | string][];
  error: {kind: string; message: string; traceback: string} | null;
  attempts: Attempt[];
  folder: string;
  /** The attempt whose curves, output and files these are. */
  attempt: number;
  /** Why its output and its files cannot be read; ''. */
  missing: string;
  curves: {tag: string; steps: number[]; values: (number | null)[]}[];
  output: {name: string; text: string}[];
  files: {name: string; size: number}[];
}

/** An objective's hyperparameters and their importance, the most important first. */
export type Importance = Record<string, [name: string, importance: number][]>;

/** Ask the server; an error says whether there was no answer, or what the server has answered. */
async function get<T>(path: string, query: Record<string, string> = {}): Promise<T> {
  const unanswered = (error: unknown): never => {
    throw new Error(`no answer from the server: ${error}`);
  };
  const answer = await fetch(`./${path}?${new URLSearchParams(query)}`).catch(unanswered);
  const data = (await answer.json().catch(unanswered)) as T & {error?: string};
  if (!answer.ok) throw new Error(data.error ?? `${path}: ${answer.status}`);
  return data;
}

export const getRuns = () => get<Facts[]>('runs');
export const getRun = (run: string, since: string) => get<Answer>('run', {run, since});
export const getTrial = (run: string, trial: number) => get<TrialPage>('trial', {run, trial: String(trial)});
export const getImportance = (run: string) => get<Importance>('importance', {run});
