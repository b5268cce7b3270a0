// The objective by two hyperparameters: the trials, and between them their weighted mean.
import {colour} from '../dom';
import type {Cell, Figure, Mark} from '../figure';
import type {Run, Trial} from '../model';
import {viridis} from '../palette';
import {scaleOf} from '../scale';
import {label} from './labels';

const SIDE = 40; // cells of each axis
const FAR = 4; // widths of a kernel beyond which a trial tells nothing

export function drawContour(figure: Figure, run: Run, trials: Trial[], across: string, up: string, [low, high]: [number, number]): void {
  const x = scaleOf(run, across, run.trials.values());
  const y = scaleOf(run, up, run.trials.values());
  const share = (score: number) => {
    const place = Math.min(Math.max((score - low) / (high - low), 0), 1);
    return run.direction === 'max' ? place : 1 - place;
  };
  const points: [x: number, y: number, share: number, trial: Trial][] = [];
  for (const trial of trials) {
    const [atX, atY] = [x.at(trial.params[across]), y.at(trial.params[up])];
    if (atX !== null && atY !== null) points.push([atX, atY, share(run.score(trial)!), trial]);
  }
  const best = run.best();
  const marks: Mark[] = points.map(([atX, atY, merit, trial]) => ({
    x: atX,
    y: atY,
    shape: trial === best ? 'star' : 'dot',
    colour: trial === best ? colour('best') : viridis(merit),
    text: label(run, trial, [across, up]),
    trial: trial.id,
  }));
  marks.sort((a, b) => Number(a.shape === 'star') - Number(b.shape === 'star'));
  figure.draw({x, y, marks, cells: cells(points.slice(-1500))}, `${run.title} by ${across} and ${up}; the brighter, the better`);
}

/** The mean of the trials around each cell, weighted by a Gaussian kernel; none where no trial is near. */
function cells(points: [x: number, y: number, share: number, trial: Trial][]): Cell[] {
  const width = Math.max(0.05, 0.35 * Math.max(points.length, 1) ** (-1 / 6) * 0.5);
  const found: Cell[] = [];
  for (let column = 0; column < SIDE; column++) {
    for (let row = 0; row < SIDE; row++) {
      const [x, y] = [(column + 0.5) / SIDE, (row + 0.5) / SIDE];
      let [weight, sum] = [0, 0];
      for (const [atX, atY, share] of points) {
        const distance = ((atX - x) ** 2 + (atY - y) ** 2) / width ** 2;
        if (distance > FAR) continue;
        const near = Math.exp(-distance / 2);
        weight += near;
        sum += near * share;
      }
      if (weight > 0.15) found.push({x: column / SIDE, y: row / SIDE, width: 1 / SIDE, height: 1 / SIDE, colour: viridis(sum / weight, 0.45)});
    }
  }
  return found;
}
