// The overview of a run: what runs now, the time left, the best configuration, the best value so far.
import {button, checkbox, choice, colour, copyButton, make} from '../dom';
import {Figure, type Line, type Mark} from '../figure';
import {count, duration, number, setting, stateText, time} from '../format';
import {bestSoFar, limits, type Run} from '../model';
import {statusColour, statusShape} from '../palette';
import {counts, linear} from '../scale';
import type {Desk, View} from '../view';
import {described, outside, trialLink} from './labels';
import {drawObjectives} from './objectives';

export function makeOverview(box: HTMLElement, desk: Desk): View {
  box.classList.add('overview');
  const top = make('div', box, '', {class: 'cards'});
  const state = card(top, 'State');
  const best = card(top, 'Best configuration');
  const now = card(top, 'Running now');
  const bar = make('div', box, '', {class: 'bar'});
  const objectives = make('span', bar);
  let axis = 'trials';
  let everything = false;
  choice(bar, 'Over', [['trials', 'trials ended'], ['time', 'time']], axis, (name) => { axis = name; view.draw(); });
  checkbox(bar, 'All values, outliers too', everything, (checked) => { everything = checked; view.draw(); });
  legend(bar);
  const figure = new Figure(make('div', box, '', {class: 'fill'}), 'Best value so far', desk.openTrial);

  const view: View = {
    draw() {
      const {run} = desk;
      drawObjectives(objectives, run, view.draw);
      drawState(state, run, desk);
      drawBest(best, run, desk);
      drawRunning(now, run, desk);
      drawProgress(figure, run, axis, everything);
    },
  };
  return view;
}

function card(parent: Element, title: string): HTMLElement {
  const section = make('section', parent, '', {class: 'card', 'aria-label': title});
  make('h2', section, title);
  return make('div', section);
}

function legend(parent: Element): void {
  const list = make('span', parent, '', {class: 'legend'});
  for (const [status, text] of [['finished', '● finished'], ['stopped', '◆ stopped early'], ['failed', '✕ failed'], ['running', '○ running']]) {
    make('span', list, text, {class: `is-${status}`});
  }
}

function drawState(box: HTMLElement, run: Run, desk: Desk): void {
  box.replaceChildren();
  const {facts} = run;
  const {done, failed, stopped = 0, cancelled = 0, running = 0} = facts.counts;
  make('p', box, stateText(facts.state), {class: `big state-${facts.state.replace(' ', '-')}`});
  if (facts.problem) make('p', box, facts.problem, {class: 'warning'});
  make('progress', box, '', {value: done, max: Math.max(facts.total, 1), 'aria-label': 'trials ended'});
  const parts = [`${done} of ${count(facts.total, 'trial')} ended`];
  if (running) parts.push(`${running} running`);
  const line = make('p', box, parts.join(', '));
  for (const [status, amount, text] of [['failed', failed, 'failed'], ['stopped', stopped, 'stopped early'], ['cancelled', cancelled, 'cancelled']] as const) {
    if (!amount) continue;
    line.append(', ');
    button(line, `${amount} ${text}`, () => desk.openTrials(`status=${status}`), {class: 'link'});
  }
  const end = facts.ended ?? (facts.state === 'running' ? Date.now() / 1000 : facts.last);
  make('p', box, `${facts.ended ? 'took' : 'for'} ${duration((end ?? facts.created) - facts.created)}${facts.left ? `, about ${duration(facts.left)} left` : ''}`);
  const algorithm = Object.entries(facts.algorithm).map(([name, value]) => (name === 'type' ? String(value) : `${name} ${setting(value)}`));
  make('p', box, `${facts.call}, ${algorithm.join(', ')}`, {class: 'soft'});
}

function drawBest(box: HTMLElement, run: Run, desk: Desk): void {
  box.replaceChildren();
  const {facts} = run;
  if (facts.front?.length) {
    make('p', box, `${count(facts.front.length, 'trial')} on the Pareto front; see Population`, {class: 'big'});
    return;
  }
  if (!facts.best) {
    make('p', box, 'No trial has a value yet.');
    return;
  }
  const {best} = facts;
  const line = make('p', box, '', {class: 'big'});
  make('b', line, `${facts.objective ?? 'metric'} ${number(best.value)}`);
  line.append(' in ');
  trialLink(line, best.trial, desk);
  make('pre', box, `params = ${best.python}`);
  copyButton(box, () => `params = ${best.python}`);
}

function drawRunning(box: HTMLElement, run: Run, desk: Desk): void {
  box.replaceChildren();
  const why = run.ended ? ': the search has ended' : run.facts.state === 'driver gone' ? ': the driver is gone' : '';
  const active = why ? [] : [...run.trials.values()].filter((trial) => trial.status === 'running');
  if (!active.length) {
    make('p', box, `Nothing${why}.`);
    return;
  }
  const list = make('ul', box, '', {class: 'scroll'});
  for (const trial of active.slice(-200)) {
    const item = make('li', list);
    trialLink(item, trial.id, desk);
    item.append(` since ${time(trial.start)}, ${described(run, trial)}`);
  }
}

function drawProgress(figure: Figure, run: Run, axis: string, everything: boolean): void {
  const ended = run.done();
  const began = run.facts.created;
  const going = [...run.trials.values()].filter((trial) => trial.status === 'running');
  const across = new Map<number, number>();
  ended.forEach((trial, index) => across.set(trial.id, axis === 'time' ? trial.end! - began : index + 1));
  going.forEach((trial, index) => across.set(trial.id, axis === 'time' ? trial.start - began : ended.length + index + 1));
  const last = [...across.values()].reduce((a, b) => Math.max(a, b), 1);
  const x = axis === 'time' ? linear('time since the start', 0, last, duration) : counts('trials ended', last);
  const scored = ended.filter((trial) => run.score(trial) !== null);
  const [low, high] = limits(run, scored.map((trial) => run.score(trial)!), everything);
  const y = linear(run.title, low, high);
  const marks: Mark[] = [];
  const floor = 0.02;
  for (const trial of [...ended, ...going]) {
    const score = run.score(trial);
    const at = score === null ? floor : y.at(score)!;
    if (at < -0.01 || at > 1.01) continue;
    const early = trial.status === 'stopped' ? 'stopped early, ' : '';
    const value = score === null ? trial.why || trial.status : early + number(score);
    marks.push({
      x: x.at(across.get(trial.id)!)!,
      y: at,
      shape: statusShape(trial.status),
      colour: statusColour(trial.status),
      text: `trial ${trial.id}: ${value}\n${described(run, trial)}`,
      trial: trial.id,
    });
  }
  const best = bestSoFar(run, scored);
  const points = scored.map((trial, index) => [x.at(across.get(trial.id)!)!, y.at(best[index])!] as [number, number]);
  if (points.length) points.push([x.at(last)!, points[points.length - 1][1]]);
  const lines: Line[] = [{points, colour: colour('best'), width: 2, stepped: true}];
  const hidden = scored.length - marks.filter((mark) => mark.y !== floor).length;
  figure.draw({x, y, marks, lines, note: outside(hidden)}, 'Best value so far');
}
