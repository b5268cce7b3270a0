// The objective by one hyperparameter.
import {colour} from '../dom';
import type {Figure, Mark} from '../figure';
import type {Run, Trial} from '../model';
import {viridis} from '../palette';
import {linear, scaleOf} from '../scale';
import {label, outside} from './labels';

export function drawSlice(figure: Figure, run: Run, trials: Trial[], name: string, [low, high]: [number, number]): void {
  const x = scaleOf(run, name, run.trials.values());
  const y = linear(run.title, low, high);
  const best = run.best();
  const marks: Mark[] = [];
  let hidden = 0;
  trials.forEach((trial, index) => {
    const at = x.at(trial.params[name]);
    const score = y.at(run.score(trial)!)!;
    if (at === null) return; // a conditional hyperparameter that this trial lacks
    if (score < 0 || score > 1) hidden++;
    else if (trial !== best) {
      marks.push({x: at, y: score, shape: 'dot', colour: viridis((0.9 * index) / trials.length, 0.8), text: label(run, trial, [name]), trial: trial.id});
    }
  });
  const star = best && x.at(best.params[name]);
  if (best && star !== null && star !== undefined) {
    marks.push({x: star, y: y.at(run.score(best)!)!, shape: 'star', colour: colour('best'), text: label(run, best, [name]), trial: best.id});
  }
  figure.draw({x, y, marks, note: outside(hidden)}, `${run.title} by ${name}`);
}
