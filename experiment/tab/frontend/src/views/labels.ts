// Trials in words, and links to them.
import {make} from '../dom';
import {count, number, shown} from '../format';
import type {Run, Trial} from '../model';
import type {Desk} from '../view';

/** A trial's hyperparameters in a line. */
export function described(run: Run, trial: Trial): string {
  const some = run.params.filter((name) => trial.params[name] !== null && trial.params[name] !== undefined);
  return some.map((name) => `${name}=${shown(trial.params[name])}`).join(', ');
}

/** A trial's score and some of its hyperparameters, in lines. */
export function label(run: Run, trial: Trial, names: string[]): string {
  const values = names.filter((name) => trial.params[name] !== null && trial.params[name] !== undefined);
  return [`trial ${trial.id}: ${number(run.score(trial)!)}`, ...values.map((name) => `${name}=${shown(trial.params[name])}`)].join('\n');
}

/** How many outliers a chart leaves out. */
export function outside(amount: number): string {
  return amount > 0 ? `${count(amount, 'outlier')} not shown` : '';
}

/** A button that opens a trial. */
export function trialLink(parent: Element, trial: number, desk: Desk): void {
  const link = make('button', parent, `trial ${trial}`, {class: 'link', type: 'button'});
  link.onclick = () => desk.openTrial(trial);
}
