// The choice of one of several objectives, of which a view shows one.
import {choice} from '../dom';
import type {Run} from '../model';

/** Let one of several objectives be chosen. */
export function drawObjectives(bar: HTMLElement, run: Run, draw: () => void): void {
  if (run.objectives.length < 2) return;
  choice(bar, 'Objective', run.objectives.map((name) => [name, name] as const), run.objective, (name) => {
    run.objective = name;
    draw();
  });
}
