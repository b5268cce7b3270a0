// All runs of the folder. Two or more that are chosen are compared: their progress, their best configurations.
import type {Facts} from '../api';
import {drawCurves, type Curve} from '../curves';
import {choice, keepingFocus, make} from '../dom';
import {date, duration, number, setting, shown, stateText} from '../format';
import {bestSoFar, limits, type Run, type Trial} from '../model';
import {LINES} from '../palette';
import type {Desk, View} from '../view';

const MOST = LINES.length;

export function makeRuns(box: HTMLElement, desk: Desk): View {
  box.classList.add('runs');
  const list = make('div', box, '', {class: 'scroll list'});
  const below = make('div', box, '', {class: 'compare'});
  const says = make('div', below);
  const compared = make('div', below, '', {hidden: true});
  const bar = make('div', compared, '', {class: 'bar'});
  const figure = make('div', compared, '', {class: 'overlay', role: 'img', 'aria-label': 'Best value so far of each chosen run'});
  const beside = make('div', compared);
  const chosen = new Set<string>();
  let axis = 'trials';
  let comparisons = 0;

  function drawList(): void {
    list.replaceChildren();
    const made = make('table', list, '', {'aria-label': 'Runs'});
    const head = make('tr', make('thead', made));
    for (const title of ['compare', 'run', 'call', 'started', 'took', 'state', 'trials', 'failed', 'best']) make('th', head, title, {scope: 'col'});
    const body = make('tbody', made);
    for (const facts of desk.runs) row(body, facts);
  }

  function row(body: HTMLElement, facts: Facts): void {
    const line = make('tr', body);
    if (facts.error) {
      make('td', line);
      make('td', line, `${facts.name}: ${facts.error}`, {colspan: 8, class: 'warning'});
      return;
    }
    const check = make('input', make('td', line), '', {type: 'checkbox', 'aria-label': `compare ${facts.name}`});
    check.checked = chosen.has(facts.name);
    check.disabled = !check.checked && chosen.size >= MOST;
    check.onchange = () => {
      if (check.checked) chosen.add(facts.name);
      else chosen.delete(facts.name);
      keepingFocus(drawList);
      void compare();
    };
    const link = make('button', make('td', line), facts.name, {class: 'link', type: 'button'});
    link.onclick = () => desk.openRun(facts.name);
    const end = facts.ended ?? facts.last ?? facts.created;
    const front = facts.front?.length ? `front ${facts.front.length}` : '';
    const best = facts.best ? `${facts.objective ?? ''} ${number(facts.best.value)}`.trim() : front;
    const state = facts.problem ? `${facts.state}: ${facts.problem}` : stateText(facts.state);
    const cells = [facts.call, date(facts.created), duration(end - facts.created), state, `${facts.counts.done} of ${facts.total}`, String(facts.counts.failed), best];
    for (const cell of cells) make('td', line, cell);
  }

  async function compare(): Promise<void> {
    const mine = ++comparisons;
    const read = await Promise.allSettled(desk.runs.filter((facts) => chosen.has(facts.name)).map((facts) => desk.read(facts.name)));
    if (mine !== comparisons) return; // other runs were chosen meanwhile
    const runs = read.filter((one) => one.status === 'fulfilled').map((one) => one.value);
    says.replaceChildren();
    if (chosen.size < 2) make('p', says, desk.runs.length > 1 ? 'Choose two runs or more to compare them.' : '', {class: 'soft'});
    for (const one of read) if (one.status === 'rejected') make('p', says, String(one.reason), {class: 'warning'});
    compared.hidden = runs.length < 2;
    if (compared.hidden) return;
    choice(bar, 'Best so far over', [['trials', 'trials ended'], ['time', 'time in seconds']], axis, (name) => {
      axis = name;
      void compare();
    });
    drawCurves(figure, runs.map((run, index) => progress(run, LINES[index], axis)), axis === 'trials' ? 'trials ended' : 'seconds', together(runs));
    const left = beside.querySelector('.scroll')?.scrollLeft ?? 0;
    // After the curves are drawn, which makes the browser compute the layout: without the table it would scroll up.
    beside.replaceChildren();
    sideBySide(beside, runs);
    beside.querySelector('.scroll')!.scrollLeft = left;
  }

  drawList();
  void compare();
  return {
    draw() {
      drawList();
      void compare();
    },
    shows: () => [...chosen],
  };
}

function progress(run: Run, colour: string, axis: string): Curve {
  const [x, scored]: [number[], Trial[]] = [[], []];
  let last = 0;
  run.done().forEach((trial, index) => {
    last = axis === 'trials' ? index + 1 : trial.end! - run.facts.created;
    if (run.score(trial) === null) return;
    x.push(last);
    scored.push(trial);
  });
  const y = bestSoFar(run, scored);
  if (x.length && last > x[x.length - 1]) { // the trials after the last value have failed
    x.push(last);
    y.push(y[y.length - 1]);
  }
  return {name: run.name, colour, x, y, stepped: true};
}

/** Limits that the first, bad values of no run rule. */
function together(runs: Run[]): [number, number] | undefined {
  const found = runs.flatMap((run) => {
    const trials = run.scored();
    return trials.length ? [limits(run, bestSoFar(run, trials), false)] : [];
  });
  if (!found.length) return undefined;
  const [low, high] = [Math.min(...found.map(([one]) => one)), Math.max(...found.map(([, one]) => one))];
  const margin = (high - low) * 0.05;
  return [low - margin, high + margin];
}

/** The run with the best value; undefined if their objectives are different ones, or some runs have several. */
function bestOf(runs: Run[]): Run | undefined {
  const valued = runs.filter((run) => run.facts.direction && run.best());
  if (valued.length < runs.length || new Set(runs.map((run) => run.title)).size > 1) return undefined;
  return valued.reduce((best, run) => (run.better(run.score(run.best()!)!, best.score(best.best()!)!) ? run : best));
}

/** Rows of the table side by side, under a heading; a cell per run. */
interface Group {
  title: string;
  rows: [name: string, cells: string[]][];
}

const NONE = '–'; // what a run does not have

function groupsOf(runs: Run[]): Group[] {
  const groups: Group[] = [];
  const group = (title: string) => groups.push({title, rows: []});
  const add = (name: string, cell: (run: Run) => string) => groups[groups.length - 1].rows.push([name, runs.map(cell)]);
  group('Best trial');
  add('value', (run) => (run.best() ? `${run.objectiveName} ${number(run.score(run.best()!)!)}` : NONE));
  add('in trial', (run) => String(run.best()?.id ?? NONE));
  for (const name of new Set(runs.flatMap((run) => run.params))) add(name, (run) => shown(run.best()?.params[name]) || NONE);
  group('Settings');
  add('call', (run) => run.facts.call);
  for (const name of new Set(runs.flatMap((run) => Object.keys(run.facts.algorithm)))) {
    add(name === 'type' ? 'algorithm' : name, (run) => (name in run.facts.algorithm ? setting(run.facts.algorithm[name]) : NONE));
  }
  for (const name of Object.keys(runs[0].facts.settings)) add(name, (run) => setting(run.facts.settings[name]));
  group('Outcome');
  add('trials', (run) => `${run.facts.counts.done} of ${run.facts.total}`);
  add('failed', (run) => String(run.facts.counts.failed));
  add('took', (run) => duration((run.facts.ended ?? run.facts.last ?? run.facts.created) - run.facts.created));
  return groups;
}

function sideBySide(parent: Element, runs: Run[]): void {
  const winner = bestOf(runs);
  if (winner) make('p', parent, `Best of these: ${winner.name}, ${winner.objectiveName} ${number(winner.score(winner.best()!)!)} in trial ${winner.best()!.id}. Rows marked ≠ differ.`, {role: 'status'});
  const made = make('table', make('div', parent, '', {class: 'scroll'}), '', {'aria-label': 'Best configurations and settings side by side'});
  const head = make('tr', make('thead', made));
  make('th', head, 'differs', {scope: 'col'});
  make('th', head, '', {scope: 'col'});
  runs.forEach((run, index) => make('th', head, run.name, {scope: 'col', style: `border-bottom: 3px solid ${LINES[index]}`}));
  for (const {title, rows} of groupsOf(runs)) {
    const body = make('tbody', made);
    make('th', make('tr', body), title, {scope: 'rowgroup', colspan: 2 + runs.length, class: 'group'});
    for (const [name, cells] of rows) {
      const differs = new Set(cells).size > 1;
      const line = make('tr', body, '', {class: differs ? 'differs' : ''});
      make('td', line, differs ? '≠' : '', differs ? {title: 'differs'} : {});
      make('th', line, name, {scope: 'row'});
      for (const cell of cells) make('td', line, cell);
    }
  }
}
