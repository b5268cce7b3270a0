// The population generation by generation: where its members lie, who came from whom, how many were accepted.
import {drawCurves, type Curve} from '../curves';
import {button, choice, colour, make, table} from '../dom';
import {Figure, type Drawing, type Mark} from '../figure';
import {count, duration, number} from '../format';
import type {Run, Selection, Trial} from '../model';
import {LINES, viridis} from '../palette';
import {counts, linear, scaleOf, type Scale} from '../scale';
import type {Desk, View} from '../view';
import {diversity, stagesOf, type Stage} from './generations';
import {drawFront} from './front';
import {label, trialLink} from './labels';

const FRAME = 700; // milliseconds of a stage while it plays

export function makePopulation(box: HTMLElement, desk: Desk): View {
  box.classList.add('scroll');
  const front = make('section', box, '', {class: 'part', 'aria-label': 'Pareto front', hidden: true});
  make('h2', front, 'Pareto front');
  const axes = make('div', front, '', {class: 'bar'});
  const frontFigure = new Figure(make('div', front, '', {class: 'medium'}), 'Pareto front', desk.openTrial);
  const bar = make('div', box, '', {class: 'bar'});
  const slider = make('input', make('label', bar, 'Show '), '', {type: 'range', min: 0, value: 0, class: 'slider'});
  const play = button(bar, '▶ Play', toggle);
  const pair = make('span', bar, '', {class: 'bar'});
  const says = make('span', bar, '', {role: 'status'});
  const halves = make('div', box, '', {class: 'halves'});
  const where = make('section', halves, '', {class: 'part', 'aria-label': 'Where the members lie'});
  const key = make('p', where, '● member, the brighter the better; ✕ rejected candidate; arrows lead from a replaced member, or the one resumed from, to the accepted candidate', {class: 'soft'});
  const figure = new Figure(make('div', where, '', {class: 'large'}), 'Population', desk.openTrial);
  const side = make('section', halves, '', {class: 'part', 'aria-label': 'By stage'});
  const charts = ['Best and mean of the population', 'Share accepted', 'Diversity'].map((title) => {
    make('h2', side, title);
    return make('div', side, '', {class: 'small', role: 'img', 'aria-label': title});
  });
  const expected = make('section', halves, '', {class: 'part', 'aria-label': 'Expected improvement'});
  make('h2', expected, 'Expected improvement: how much better than the best value the model expected each trial to be');
  const expectedChart = make('div', expected, '', {class: 'medium', role: 'img', 'aria-label': 'Expected improvement by trial'});
  make('p', expected, 'The logarithm of the expected improvement over the best value. The lower it is, the less is a further trial expected to gain. The first trials have none: there was no model yet.', {class: 'soft'});
  const tableBox = make('div', box, '', {class: 'scroll'});
  let [across, up] = ['', ''];
  let [objectiveX, objectiveY] = ['', ''];
  let stages: Stage[] = [];
  let generations = false;
  let seen = '';
  let timer = 0;

  slider.oninput = () => drawStage();

  function toggle(): void {
    if (timer) return stop();
    if (Number(slider.value) >= stages.length - 1) slider.value = '0';
    play.textContent = '❚❚ Pause';
    timer = window.setInterval(() => {
      if (!box.isConnected || Number(slider.value) >= stages.length - 1) return stop();
      slider.value = String(Number(slider.value) + 1);
      drawStage();
    }, FRAME);
    drawStage();
  }

  function stop(): void {
    clearInterval(timer);
    timer = 0;
    play.textContent = '▶ Play';
  }

  function draw(): void {
    const {run} = desk;
    front.hidden = !run.objectives.length;
    if (run.objectives.length) drawObjectivePair();
    const following = Number(slider.value) >= stages.length - 1;
    ({stages, generations} = stagesOf(run));
    slider.max = String(Math.max(0, stages.length - 1));
    if (following || seen !== run.name) slider.value = slider.max;
    seen = run.name;
    if (!run.params.includes(across)) [across, up] = [run.params[0] ?? '', run.params[1] ?? ''];
    drawPair();
    const none = !stages.length;
    for (const part of [slider.parentElement!, play, side, key]) part.hidden = none;
    tableBox.hidden = none;
    drawAcquisition(run);
    if (none) return drawProposals(run);
    drawStages(run);
    drawStage();
  }

  function drawObjectivePair(): void {
    const {run} = desk;
    if (!run.objectives.includes(objectiveX)) [objectiveX, objectiveY] = run.objectives;
    const titles = run.objectives.map((name) => [name, name] as const);
    choice(axes, 'Horizontal axis', titles, objectiveX, (name) => {
      objectiveX = name;
      draw();
    });
    choice(axes, 'Vertical axis', titles, objectiveY, (name) => {
      objectiveY = name;
      draw();
    });
    drawFront(frontFigure, run, objectiveX, objectiveY);
  }

  function drawPair(): void {
    const {run} = desk;
    const titles = run.params.map((name) => [name, name] as const);
    choice(pair, 'Horizontal axis', titles, across, (name) => {
      across = name;
      draw();
    });
    choice(pair, 'Vertical axis', [...titles, ['', run.title] as const], up, (name) => {
      up = name;
      draw();
    });
  }

  /** What a model expected of the trials that it proposed. */
  function drawAcquisition(run: Run): void {
    const proposed = [...run.trials.values()].filter((trial) => trial.acquisition !== undefined).sort((a, b) => a.id - b.id);
    expected.hidden = !proposed.length;
    drawCurves(expectedChart, proposed.length ? [{name: 'expected improvement, logarithm', colour: LINES[0], x: proposed.map(({id}) => id), y: proposed.map(({acquisition}) => acquisition!)}] : [], 'trial');
  }

  /** Where trials were proposed, one after the other, for a search without a population. */
  function drawProposals(run: Run): void {
    says.textContent = 'This search has no population; where it looked, one trial after the other:';
    const x = counts('trial', run.trials.size);
    const y = up ? scaleOf(run, up, run.trials.values()) : scoreScale(run);
    const scored = run.scored();
    const rank = ranks(run, scored);
    const marks: Mark[] = [];
    for (const trial of scored) {
      const at = up ? y.at(trial.params[up]) : y.at(run.score(trial)!);
      if (at !== null) marks.push({x: x.at(trial.id)!, y: at, shape: 'dot', colour: viridis(rank.get(trial.id)!), text: label(run, trial, run.params), trial: trial.id});
    }
    figure.draw({x, y, marks}, 'Proposed trials; the brighter, the better');
  }

  function drawStages(run: Run): void {
    const scales = run.params.map((name) => [name, scaleOf(run, name, run.trials.values())] as [string, Scale]);
    const members = stages.map((stage) => trialsOf(run, stage.members));
    const scores = members.map((trials) => trials.map((trial) => run.score(trial)).filter((score): score is number => score !== null));
    const x = stages.map((_, index) => (generations ? index : stages.slice(0, index + 1).reduce((sum, one) => sum + one.selections.length, 0)));
    const unit = generations ? 'generation' : 'trials ended';
    const best = scores.map((some) => (some.length ? some.reduce((a, b) => (run.better(b, a) ? b : a)) : null));
    const mean = scores.map((some) => (some.length ? some.reduce((a, b) => a + b, 0) / some.length : null));
    const share = stages.map(({selections}, index) => (generations && !index ? null : selections.filter(({accepted}) => accepted).length / (selections.length || 1)));
    const curve = (name: string, y: (number | null)[], paint: number): Curve => ({name, colour: LINES[paint], x, y});
    drawCurves(charts[0], [curve('best', best, 1), curve('mean', mean, 0)], unit);
    drawCurves(charts[1], [curve('accepted', generations ? share : smooth(share), 2)], unit, [0, 1]);
    drawCurves(charts[2], [curve('diversity', members.map((trials) => diversity(trials, scales)), 3)], unit);
  }

  function drawStage(): void {
    const {run} = desk;
    const stage = stages[Number(slider.value)];
    if (!stage) return;
    says.textContent = `${stage.title}: ${count(stage.members.length, 'member')}${chosen(stage)}${lasted(run, stage)}${gained(run, stage, stages[Number(slider.value) - 1])}`;
    slider.setAttribute('aria-valuetext', says.textContent);
    figure.draw(membersDrawing(run, stage, across, up), `Population, ${stage.title}`);
    tableBox.replaceChildren();
    const made = table(tableBox, ['candidate', run.title, 'selection', 'compared with', run.title], [], `Selections of ${stage.title}`);
    for (const selection of stage.selections.slice(-200)) drawSelection(made.tBodies[0], desk, selection);
  }

  return {draw};
}

/** How many candidates of a stage took the place of a member; nothing where all places were free. */
function chosen({selections}: Stage): string {
  const accepted = selections.filter((one) => one.accepted);
  if (accepted.length === selections.length && accepted.every(({holder}) => holder === null)) return '';
  return `, ${accepted.length} of ${count(selections.length, 'candidate')} accepted`;
}

/** How long the candidates of a stage took, from the first one's start to the last one's end. */
function lasted(run: Run, stage: Stage): string {
  const trials = trialsOf(run, stage.selections.map(({trial}) => trial)).filter(({end}) => end !== null);
  if (!trials.length) return '';
  const [start, end] = [Math.min(...trials.map((trial) => trial.start)), Math.max(...trials.map((trial) => trial.end!))];
  return `, took ${duration(end - start)}`;
}

/** What a stage gained: the best value of the population, and that of the stage before. */
function gained(run: Run, stage: Stage, before: Stage | undefined): string {
  const [now, then] = [stage, before].map((one) => {
    const scores = one ? trialsOf(run, one.members).map((trial) => run.score(trial)).filter((score): score is number => score !== null) : [];
    return scores.length ? scores.reduce((a, b) => (run.better(b, a) ? b : a)) : null;
  });
  if (run.objectives.length || now === null) return '';
  if (then === null) return `; best ${number(now)}`;
  return run.better(now, then) ? `; best ${number(now)}, before ${number(then)}` : `; best ${number(now)}, no better than before`;
}

function drawSelection(body: Element, desk: Desk, {trial, accepted, holder}: Selection): void {
  const {trials} = desk.run;
  const row = make('tr', body);
  trialLink(make('td', row), trial, desk);
  make('td', row, scoreText(desk.run, trials.get(trial)));
  make('td', row, accepted ? (holder === null ? 'took a free place' : 'accepted') : 'rejected');
  const other = make('td', row);
  if (holder !== null) trialLink(other, holder, desk);
  make('td', row, holder === null ? '' : scoreText(desk.run, trials.get(holder)));
}

function scoreText(run: Run, trial: Trial | undefined): string {
  const score = trial ? run.score(trial) : null;
  return score === null ? (trial ? trial.status : '') : number(score);
}

function trialsOf(run: Run, ids: number[]): Trial[] {
  return ids.map((id) => run.trials.get(id)).filter((trial): trial is Trial => trial !== undefined);
}

function scoreScale(run: Run): Scale {
  const scores = run.scored().map((trial) => run.score(trial)!);
  const low = scores.reduce((a, b) => Math.min(a, b), Infinity);
  const high = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  return linear(run.title, Number.isFinite(low) ? low : 0, Number.isFinite(high) ? high : 1);
}

/** The share of trials that each one is better than. */
function ranks(run: Run, trials: Trial[]): Map<number, number> {
  const sorted = [...trials].sort((a, b) => (run.better(run.score(a)!, run.score(b)!) ? 1 : -1));
  return new Map(sorted.map((trial, index) => [trial.id, index / Math.max(1, sorted.length - 1)]));
}

function membersDrawing(run: Run, stage: Stage, across: string, up: string): Drawing {
  const x = scaleOf(run, across, run.trials.values());
  const y = up ? scaleOf(run, up, run.trials.values()) : scoreScale(run);
  const place = (trial: Trial | undefined): [number, number] | null => {
    if (!trial) return null;
    const [atX, atY] = [x.at(trial.params[across]), up ? y.at(trial.params[up]) : y.at(run.score(trial))];
    return atX === null || atY === null ? null : [atX, atY];
  };
  const rank = ranks(run, run.scored());
  const marks: Mark[] = [];
  const add = (trial: Trial, shape: Mark['shape'], paint: string) => {
    const at = place(trial);
    if (at) marks.push({x: at[0], y: at[1], shape, colour: paint, text: run.score(trial) === null ? `trial ${trial.id}: ${trial.status}` : label(run, trial, run.params), trial: trial.id});
  };
  const arrows: NonNullable<Drawing['arrows']> = [];
  for (const {trial, accepted, holder} of stage.selections) {
    const candidate = run.trials.get(trial);
    if (candidate && !accepted) add(candidate, 'cross', colour('soft'));
    const from = accepted ? place(run.trials.get(holder ?? candidate?.parent ?? -1)) : null;
    const to = place(candidate);
    if (from && to) arrows.push([...from, ...to, colour('soft')]);
  }
  for (const trial of trialsOf(run, stage.members)) add(trial, 'dot', viridis(rank.get(trial.id) ?? 0));
  return {x, y, marks, arrows};
}

/** A mean over some neighbours: single selections are accepted or not. */
function smooth(values: (number | null)[]): (number | null)[] {
  const reach = 10;
  return values.map((_, index) => {
    const near = values.slice(Math.max(0, index - reach), index + reach + 1).filter((value): value is number => value !== null);
    return near.reduce((a, b) => a + b, 0) / (near.length || 1);
  });
}
