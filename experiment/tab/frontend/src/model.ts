// A run as this page knows it: its trials, and what is computed from them.
import {getRun, type Answer, type Facts} from './api';

export type Value = number | string | boolean;
export type Status = 'finished' | 'failed' | 'stopped' | 'cancelled' | 'running' | 'waiting';

export interface Domain {
  conditional: boolean;
  values?: Value[];
  low?: number;
  high?: number;
  log?: boolean;
  integer?: boolean;
}

export interface Trial {
  id: number;
  status: Status;
  value: number | null;
  seconds: number | null;
  generation: number | null;
  parent: number | null;
  attempt: number;
  slots: string[];
  start: number;
  end: number | null;
  why: string;
  /** Of a trial that a model has proposed: the logarithm of the improvement that it expected. */
  acquisition?: number;
  params: Record<string, Value | null>;
  metrics: Record<string, number | null>;
}

export interface LostAttempt {
  trial: number;
  number: number;
  slots: string[];
  start: number;
  end: number;
  why: string;
}

export interface SlotEvent {
  at: number;
  slot: string;
  what: string;
  text: string;
}

export interface Selection {
  trial: number;
  accepted: boolean;
  holder: number | null;
}

export class Run {
  facts!: Facts;
  trials = new Map<number, Trial>();
  space: Record<string, Domain> = {};
  params: string[] = [];
  metrics: string[] = [];
  lost = new Map<string, LostAttempt>();
  slotEvents: SlotEvent[] = [];
  selections: Selection[] = [];
  /** The objective that is shown, of several. */
  objective = '';
  private mark = '';
  private pending?: Promise<boolean>;

  constructor(readonly name: string) {}

  /** Ask for what is new; return whether anything was. */
  update(): Promise<boolean> {
    // A second question before the answer would have the same mark, and what is new would come twice.
    this.pending ??= this.ask().finally(() => (this.pending = undefined));
    return this.pending;
  }

  private async ask(): Promise<boolean> {
    const before = this.mark;
    const answer = await getRun(this.name, this.mark);
    const state = this.facts?.state;
    if (answer.whole) this.clear();
    this.take(answer);
    return answer.mark !== before || answer.state !== state;
  }

  get ended(): boolean {
    return this.facts.ended !== null;
  }

  get objectives(): string[] {
    return Object.keys(this.facts.objectives);
  }

  get direction(): 'max' | 'min' {
    return this.facts.direction || this.facts.objectives[this.objective] || 'max';
  }

  get objectiveName(): string {
    return this.objective || this.facts.objective || 'metric';
  }

  /** The objective with an arrow that shows which way is better. */
  get title(): string {
    return `${this.objectiveName} ${this.direction === 'max' ? '↑' : '↓'}`;
  }

  score(trial: Trial): number | null {
    return this.facts.direction ? trial.value : (trial.metrics[this.objective] ?? null);
  }

  better(score: number, other: number): boolean {
    return this.direction === 'max' ? score > other : score < other;
  }

  best(): Trial | undefined {
    let best: Trial | undefined;
    for (const trial of this.trials.values()) {
      const score = this.score(trial);
      if (score !== null && (!best || this.better(score, this.score(best)!))) best = trial;
    }
    return best;
  }

  /** The trials that have ended, failed ones too, in the order of their ends. */
  done(): Trial[] {
    const found = [...this.trials.values()].filter((trial) => trial.end !== null && trial.status !== 'cancelled' && trial.status !== 'waiting');
    return found.sort((a, b) => a.end! - b.end! || a.id - b.id);
  }

  /** The trials with a score, in the order of their ends. */
  scored(): Trial[] {
    const found = [...this.trials.values()].filter((trial) => this.score(trial) !== null);
    return found.sort((a, b) => (a.end ?? 0) - (b.end ?? 0) || a.id - b.id);
  }

  /** Other metrics than the objective. */
  get otherMetrics(): string[] {
    return this.metrics.filter((name) => !this.facts.direction || name !== this.facts.objective);
  }

  private clear(): void {
    this.trials.clear();
    this.lost.clear();
    this.slotEvents = [];
    this.selections = [];
    this.params = [];
    this.metrics = [];
  }

  private take(answer: Answer): void {
    const {columns, params, metrics, lost, slot_events, selections, acquisitions, space, ...facts} = answer;
    const expected = new Map(acquisitions);
    this.facts = facts;
    this.mark = answer.mark;
    if (space) this.space = space;
    if (!this.objective) this.objective = this.objectives[0] ?? '';
    this.params = [...new Set([...Object.keys(this.space), ...this.params, ...Object.keys(params)])];
    this.metrics = [...new Set([...this.metrics, ...Object.keys(metrics)])];
    columns.id.forEach((id, row) => {
      const named = <T>(by: Record<string, T[]>) => Object.fromEntries(Object.entries(by).map(([name, all]) => [name, all[row]]));
      this.trials.set(id, {
        id,
        status: columns.status[row],
        value: columns.value[row],
        seconds: columns.seconds[row],
        generation: columns.generation[row],
        parent: columns.parent[row],
        attempt: columns.attempt[row],
        slots: columns.slots[row],
        start: columns.start[row],
        end: columns.end[row],
        why: columns.why[row] ?? '',
        acquisition: expected.get(id),
        params: named(params),
        metrics: named(metrics),
      });
    });
    for (const [trial, number, slots, start, end, why] of lost) {
      this.lost.set(`${trial}-${number}`, {trial, number, slots, start, end, why});
    }
    for (const [at, slot, what, text] of slot_events) this.slotEvents.push({at, slot, what, text});
    for (const [trial, accepted, holder] of selections) this.selections.push({trial, accepted, holder});
  }
}

/** The best score after each of the trials. */
export function bestSoFar(run: Run, trials: Trial[]): number[] {
  const best: number[] = [];
  trials.forEach((trial, index) => {
    const score = run.score(trial)!;
    best.push(index && !run.better(score, best[index - 1]) ? best[index - 1] : score);
  });
  return best;
}

/** Limits of an axis of scores that outliers do not rule, as in the plots of a result: the best two, and all but the
 * worst tenth; all of them if that saves little. */
export function limits(run: Run, scores: number[], all: boolean): [number, number] {
  if (!scores.length) return [0, 1];
  const sorted = [...scores].sort((a, b) => (run.better(a, b) ? -1 : 1));
  const last = sorted.length - 1;
  const [best, worst] = [sorted[0], sorted[last]];
  let typical = sorted[Math.min(last, Math.max(1, Math.floor(last * 0.9)))];
  if (all || Math.abs(worst - best) <= 2.001 * Math.abs(typical - best)) typical = worst; // not 2, for rounding
  const [low, high] = [Math.min(best, typical), Math.max(best, typical)];
  const margin = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
  return [low - margin, high + margin];
}
