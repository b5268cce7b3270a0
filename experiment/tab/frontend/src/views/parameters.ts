// The hyperparameters: how important each is, and how the objective depends on one, on two, on all.
import {getImportance, type Importance} from '../api';
import {choice, make} from '../dom';
import {Figure} from '../figure';
import {limits, type Run, type Trial} from '../model';
import type {Desk, View} from '../view';
import {drawContour} from './contour';
import {drawObjectives} from './objectives';
import {ParallelCoordinates} from './parallel';
import {drawSlice} from './slice';

const MOST = 4000; // trials in a chart; more hide each other

export function makeParameters(box: HTMLElement, desk: Desk): View {
  box.classList.add('parameters', 'scroll');
  const bar = make('div', box, '', {class: 'bar'});
  const top = make('div', box, '', {class: 'halves'});
  const importance = part(top, 'Importance', 'What sets the best tenth of the trials apart from all trials: the share of each hyperparameter (PED-ANOVA).');
  const contour = part(top, 'Two hyperparameters', 'The objective where trials were, smoothed: the brighter, the better; ★ is the best trial.');
  const slices = part(box, 'One hyperparameter', 'Each trial is a point; later trials are brighter; ★ is the best.');
  const parallel = part(box, 'All hyperparameters', 'Drag along an axis to keep some trials; a click on the axis keeps all again.');

  const bars = make('div', importance, '', {class: 'bars'});
  const pair = make('div', contour, '', {class: 'bar'});
  const contourFigure = new Figure(make('div', contour, '', {class: 'medium'}), 'Contour', desk.openTrial);
  const sliceBox = make('div', slices, '', {class: 'slices'});
  const coordinates = new ParallelCoordinates(parallel, desk.openTrial);
  let figures = new Map<string, Figure>();
  let found: Importance = {};
  let asked = '';
  let [across, up] = ['', ''];
  let chosen = false; // whether these two stay, though the importance changes

  async function ask(run: Run): Promise<void> {
    const version = `${run.name} ${run.facts.counts.done}`;
    if (version === asked) return;
    asked = version;
    try {
      found = await getImportance(run.name);
    } catch (error) {
      bars.replaceChildren();
      make('p', bars, String(error), {class: 'warning'});
      return;
    }
    draw();
  }

  function ranked(run: Run): [string, number][] {
    const known = found[run.objective] ?? found[''] ?? [];
    const others = run.params.filter((name) => !known.some(([other]) => other === name));
    return [...known, ...others.map((name) => [name, 0] as [string, number])];
  }

  function draw(): void {
    const {run} = desk;
    const trials = sample(run, run.scored());
    const names = ranked(run).map(([name]) => name);
    drawObjectives(bar, run, draw);
    const known = found[run.objective] ?? found[''] ?? [];
    drawImportance(bars, ranked(run), known.length > 0, (name) => {
      slices.scrollIntoView();
      figures.get(name)?.box.querySelector('canvas')?.focus();
    });
    if (!chosen || !names.includes(across)) [across, up] = [names[0] ?? '', names[1] ?? names[0] ?? ''];
    chosen ||= known.length > 0; // the most important ones, as soon as these are known
    drawPair(run.params); // in an order that stays while their importance changes
    const [low, high] = limits(run, trials.map((trial) => run.score(trial)!), false);
    if (across) drawContour(contourFigure, run, trials, across, up, [low, high]);
    if ([...figures.keys()].join('\n') !== names.join('\n')) {
      sliceBox.replaceChildren();
      figures = new Map(names.map((name) => [name, new Figure(make('div', sliceBox, '', {class: 'slice'}), `${run.title} by ${name}`, desk.openTrial)]));
    }
    for (const [name, figure] of figures) drawSlice(figure, run, trials, name, [low, high]);
    coordinates.draw(run, trials, run.params);
    void ask(run);
  }

  function drawPair(names: string[]): void {
    const titles = names.map((name) => [name, name] as const);
    choice(pair, 'Horizontal axis', titles, across, (name) => {
      [across, chosen] = [name, true];
      draw();
    });
    choice(pair, 'Vertical axis', titles, up, (name) => {
      [up, chosen] = [name, true];
      draw();
    });
  }

  return {draw};
}

function part(parent: Element, title: string, explanation: string): HTMLElement {
  const section = make('section', parent, '', {class: 'part', 'aria-label': title});
  make('h2', section, title);
  make('p', section, explanation, {class: 'soft'});
  return section;
}

function drawImportance(box: HTMLElement, ranked: [string, number][], known: boolean, open: (name: string) => void): void {
  box.replaceChildren();
  const [first, second] = ranked;
  if (known && first) {
    const says = first[1] > 0 ? `${first[0]} matters most${second && second[1] === first[1] ? `, and ${second[0]} as much` : ''}.` : 'These trials do not show which one matters: they are too few, or too much alike.';
    make('p', box, says, {role: 'status'});
  }
  const most = ranked[0]?.[1] || 1;
  const list = make('ol', box);
  for (const [name, share] of ranked) {
    const item = make('li', list);
    const button = make('button', item, name, {type: 'button', class: 'link'});
    button.onclick = () => open(name);
    const track = make('span', item, '', {class: 'track', 'aria-hidden': 'true'});
    make('span', track, '', {class: 'share', style: `width:${(100 * share) / most}%`});
    make('span', item, `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`, {class: 'percent'});
  }
  if (!ranked.length) make('p', box, 'No trial has hyperparameters yet.');
}

/** Return at most so many trials: the best, and every n-th of the others. */
function sample(run: Run, trials: Trial[]): Trial[] {
  if (trials.length <= MOST) return trials;
  const sorted = [...trials].sort((a, b) => (run.better(run.score(a)!, run.score(b)!) ? -1 : 1));
  const best = new Set(sorted.slice(0, MOST / 8).map((trial) => trial.id));
  const every = Math.ceil(trials.length / ((MOST * 7) / 8));
  return trials.filter((trial, index) => best.has(trial.id) || index % every === 0);
}
