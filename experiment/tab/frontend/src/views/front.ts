// Two of several objectives: each trial a point, and the Pareto front.
import {colour} from '../dom';
import type {Figure, Mark} from '../figure';
import {count, number} from '../format';
import type {Run, Trial} from '../model';
import {linear, type Scale} from '../scale';
import {outside} from './labels';

export function drawFront(figure: Figure, run: Run, across: string, up: string): void {
  const front = new Set(run.facts.front);
  const trials = [...run.trials.values()].filter((trial) => typeof trial.metrics[across] === 'number' && typeof trial.metrics[up] === 'number');
  const [x, y] = [axis(run, trials, across, front), axis(run, trials, up, front)];
  const place = (trial: Trial): [number, number] => [x.at(trial.metrics[across])!, y.at(trial.metrics[up])!];
  const seen = trials.filter((trial) => place(trial).every((at) => at >= 0 && at <= 1));
  const marks: Mark[] = [...seen].sort((a, b) => Number(front.has(a.id)) - Number(front.has(b.id))).map((trial) => ({
    x: place(trial)[0],
    y: place(trial)[1],
    shape: front.has(trial.id) ? 'diamond' : 'dot',
    colour: colour(front.has(trial.id) ? 'best' : 'good'),
    text: `trial ${trial.id}${front.has(trial.id) ? ', on the front' : ''}\n${run.objectives.map((name) => `${name}=${number(trial.metrics[name] ?? NaN)}`).join('\n')}`,
    trial: trial.id,
  }));
  const points = trials.filter((trial) => front.has(trial.id)).map(place).sort((a, b) => a[0] - b[0]);
  const lines = run.objectives.length === 2 ? [{points, colour: colour('best'), width: 1}] : [];
  figure.draw({x, y, marks, lines, note: outside(trials.length - seen.length)}, `Pareto front: ◆ ${count(front.size, 'trial')} of ${trials.length}`);
}

/** An axis over the front, and over all other trials but the outermost twentieth on the bad side. */
function axis(run: Run, trials: Trial[], name: string, front: Set<number>): Scale {
  const up = run.facts.objectives[name] === 'max';
  const sorted = [...trials].sort((a, b) => (up ? 1 : -1) * (b.metrics[name]! - a.metrics[name]!));
  const last = Math.max(Math.floor((sorted.length - 1) * 0.95), sorted.findLastIndex((trial) => front.has(trial.id)));
  const [best, worst] = [sorted[0]?.metrics[name] ?? 0, sorted[last]?.metrics[name] ?? 1];
  const margin = Math.abs(best - worst) * 0.05 || 1;
  return linear(`${name} ${up ? '↑' : '↓'}`, Math.min(best, worst) - margin, Math.max(best, worst) + margin);
}
