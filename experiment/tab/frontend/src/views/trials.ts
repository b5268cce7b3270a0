// The trials of a run as a table: only the rows on the screen are elements, so 50,000 are no more than 50.
import {keepingFocus, make} from '../dom';
import {duration, number, shown, time} from '../format';
import type {Run, Trial, Value} from '../model';
import type {Desk, View} from '../view';
import {matches, wordsFor} from './filter';

const HEIGHT = 24; // pixels of a row

export interface Column {
  name: string;
  title: string;
  value(trial: Trial): Value | null;
  text?(trial: Trial): string;
  /** Left out until it is chosen. */
  extra?: boolean;
}

export function columnsOf(run: Run): Column[] {
  const scores: Column[] = run.facts.direction
    ? [{name: 'value', title: run.title, value: (trial) => trial.value}]
    : run.objectives.map((name) => ({
        name: `metrics.${name}`,
        title: `${name} ${run.facts.objectives[name] === 'max' ? '↑' : '↓'}`,
        value: (trial) => trial.metrics[name] ?? null,
      }));
  const front = new Set(run.facts.front);
  if (!run.facts.direction) scores.push({name: 'front', title: 'front', value: (trial) => (front.has(trial.id) ? 'yes' : '')});
  const metrics = run.otherMetrics.filter((name) => !run.objectives.includes(name));
  const generations = [...run.trials.values()].some((trial) => trial.generation !== null);
  const before: Column[] = [
    {name: 'trial', title: 'trial', value: (trial) => trial.id},
    {name: 'status', title: 'status', value: (trial) => trial.status},
    ...scores,
  ];
  const after: Column[] = [
    ...metrics.map((name) => ({name: `metrics.${name}`, title: name, value: (trial: Trial) => trial.metrics[name] ?? null})),
    {name: 'generation', title: 'generation', value: (trial) => trial.generation, extra: !generations},
    {name: 'seconds', title: 'took', value: (trial) => trial.seconds, text: (trial) => duration(trial.seconds)},
    {name: 'end', title: 'ended', value: (trial) => trial.end, text: (trial) => time(trial.end)},
    {name: 'why', title: 'error or reason', value: (trial) => trial.why || null},
    {name: 'start', title: 'started', value: (trial) => trial.start, text: (trial) => time(trial.start), extra: true},
    {name: 'slot', title: 'slot', value: (trial) => trial.slots.join(' '), extra: true},
    {name: 'attempt', title: 'attempt', value: (trial) => trial.attempt, extra: true},
    {name: 'parent', title: 'resumed from', value: (trial) => trial.parent, extra: true},
  ];
  const taken = new Set([...before, ...after].flatMap(wordsFor));
  const params = run.params.map((name) => {
    const clear = `params.${name}`;
    return {name: clear, title: taken.has(name) ? clear : name, value: (trial: Trial) => trial.params[name] ?? null};
  });
  return [...before, ...params, ...after];
}

export function makeTrials(box: HTMLElement, desk: Desk): View {
  box.classList.add('trials');
  const bar = make('div', box, '', {class: 'bar'});
  const label = make('label', bar, 'Filter ');
  const filter = make('input', label, '', {type: 'search', size: 40, placeholder: 'trial=8  status=failed  units>=8  text'});
  const menu = make('details', bar, '', {class: 'menu'});
  make('summary', menu, 'Columns');
  const chooser = make('div', menu);
  const says = make('span', bar, '', {role: 'status', class: 'soft'});
  filter.value = desk.filter;
  const grid = make('div', box, '', {class: 'grid', role: 'grid', tabindex: 0, 'aria-label': 'Trials; arrow keys choose a row, Enter opens it'});
  const inside = make('div', grid, '', {class: 'in', role: 'presentation'});

  let columns: Column[] = [];
  let widths: number[] = [];
  let order: Trial[] = [];
  let active = 0;
  let sort: {name: string; up: boolean} | null = null;
  const toggled = new Map<string, boolean>();

  function arrange(): void {
    const {run} = desk;
    const all = columnsOf(run);
    columns = all.filter((column) => toggled.get(column.name) ?? !column.extra);
    drawChooser(all);
    if (!sort) sort = {name: run.facts.direction ? 'value' : `metrics.${run.objective}`, up: run.direction === 'min'};
    const column = all.find((one) => one.name === sort!.name) ?? all[0];
    const sign = sort.up ? 1 : -1;
    const keep = matches(filter.value, all);
    const keyed = [...run.trials.values()].filter(keep).map((trial) => [column.value(trial), trial] as const);
    keyed.sort(([x, a], [y, b]) => {
      const [none, other] = [x === null || x === '', y === null || y === ''];
      if (none || other) return none && other ? a.id - b.id : none ? 1 : -1; // what has no value comes last, either way
      if (typeof x === 'number' && typeof y === 'number') return sign * (x - y) || a.id - b.id;
      return sign * String(x).localeCompare(String(y), 'en', {numeric: true}) || a.id - b.id;
    });
    order = keyed.map(([, trial]) => trial);
    active = Math.min(active, Math.max(0, order.length - 1));
    says.textContent = `${order.length} of ${run.trials.size} trials`;
    const some = order.slice(0, 60);
    widths = columns.map((one) => {
      const longest = Math.max(one.title.length + 3, ...some.map((trial) => cellText(one, trial).length));
      return Math.min(320, Math.max(60, 22 + 8.4 * longest));
    });
    grid.setAttribute('aria-rowcount', String(order.length + 1));
    grid.setAttribute('aria-colcount', String(columns.length));
    drawRows();
  }

  function drawChooser(all: Column[]): void {
    if (chooser.childElementCount === all.length) return;
    chooser.replaceChildren();
    for (const column of all) {
      const item = make('label', chooser, '', {class: 'check'});
      const input = make('input', item, '', {type: 'checkbox'});
      make('span', item, column.title);
      input.checked = toggled.get(column.name) ?? !column.extra;
      input.onchange = () => {
        toggled.set(column.name, input.checked);
        arrange();
      };
    }
  }

  function drawRows(): void {
    const first = Math.max(0, Math.floor(grid.scrollTop / HEIGHT) - 5);
    const last = Math.min(order.length, first + Math.ceil(grid.clientHeight / HEIGHT) + 10);
    inside.style.height = `${(order.length + 1) * HEIGHT}px`;
    inside.style.width = `${widths.reduce((a, b) => a + b, 0)}px`;
    inside.replaceChildren();
    drawHead();
    const best = desk.run.facts.best?.trial ?? -1;
    for (let index = first; index < last; index++) drawRow(order[index], index, best);
  }

  function drawHead(): void {
    const head = make('div', inside, '', {class: 'row head', role: 'row', 'aria-rowindex': 1});
    columns.forEach((column, index) => {
      const here = column.name === sort!.name;
      const cell = make('span', head, '', {role: 'columnheader', style: widthOf(column, widths[index]), 'aria-sort': here ? (sort!.up ? 'ascending' : 'descending') : 'none'});
      const button = make('button', cell, here ? `${column.title.replace(/ [↑↓]$/, '')} ${sort!.up ? '▲' : '▼'}` : column.title, {type: 'button', 'aria-label': column.title});
      button.onclick = () => {
        sort = {name: column.name, up: here ? !sort!.up : column.name === 'trial'};
        keepingFocus(arrange);
      };
    });
  }

  function drawRow(trial: Trial, index: number, best: number): void {
    const classes = ['row', `is-${trial.status}`, index % 2 ? 'odd' : '', trial.id === best ? 'best' : '', index === active ? 'active' : ''];
    const line = make('div', inside, '', {
      class: classes.filter(Boolean).join(' '),
      role: 'row',
      id: `row-${index}`,
      'aria-rowindex': index + 2,
      'aria-selected': String(index === active), // as a word: an attribute without a value says nothing
      style: `top:${(index + 1) * HEIGHT}px`,
    });
    columns.forEach((column, place) => {
      const value = column.value(trial);
      const text = cellText(column, trial);
      make('span', line, text, {role: 'gridcell', class: typeof value === 'number' ? 'number' : '', style: widthOf(column, widths[place]), title: text.length > 40 ? text : undefined});
    });
    line.onclick = () => {
      active = index;
      desk.openTrial(trial.id);
    };
  }

  grid.onscroll = () => keepingFocus(drawRows);
  filter.oninput = () => {
    desk.filter = filter.value;
    arrange();
  };
  grid.onkeydown = (event) => {
    const page = Math.max(1, Math.floor(grid.clientHeight / HEIGHT) - 2);
    const moves: Record<string, number> = {ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -order.length, End: order.length};
    if (event.target !== grid) return;
    if (!(event.key in moves) && event.key !== 'Enter') return;
    event.preventDefault(); // Enter would press the dialog's button, too
    if (event.key === 'Enter') {
      if (order[active]) desk.openTrial(order[active].id);
      return;
    }
    active = Math.min(Math.max(0, active + moves[event.key]), order.length - 1);
    const top = (active + 1) * HEIGHT;
    if (top < grid.scrollTop + HEIGHT) grid.scrollTop = top - HEIGHT;
    if (top > grid.scrollTop + grid.clientHeight - 2 * HEIGHT) grid.scrollTop = top - grid.clientHeight + 2 * HEIGHT;
    grid.setAttribute('aria-activedescendant', `row-${active}`);
    drawRows();
  };
  return {draw: arrange};
}

/** The width of a column; that of errors has what is left. */
function widthOf(column: Column, width: number): string {
  return column.name === 'why' ? `flex:1 0 ${width}px` : `width:${width}px`;
}

function cellText(column: Column, trial: Trial): string {
  if (column.text) return column.text(trial);
  const value = column.value(trial);
  return typeof value === 'number' ? number(value) : shown(value);
}
