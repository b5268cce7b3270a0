// The page: a run is chosen, a view is chosen, and both are kept up to date while they are seen.
import uplotStyle from 'uplot/dist/uPlot.min.css';
import {getRuns, type Facts} from './api';
import {choice, keepingFocus, make} from './dom';
import {number, stateText} from './format';
import {address, hidden, onDark, onReload, setAddress, setTitle} from './host';
import {Run} from './model';
import ownStyle from './style.css';
import {openTrial} from './trial';
import type {Desk, View, ViewKind} from './view';
import {makeOverview} from './views/overview';
import {makeParameters} from './views/parameters';
import {makePopulation} from './views/population';
import {makeRuns} from './views/runs';
import {makeSlots} from './views/slots';
import {makeTrials} from './views/trials';

const EVERY = 2000; // milliseconds between two questions to the server
const VIEWS: ViewKind[] = [
  {name: 'runs', title: 'Runs', make: makeRuns},
  {name: 'overview', title: 'Overview', make: makeOverview},
  {name: 'trials', title: 'Trials', make: makeTrials},
  {name: 'parameters', title: 'Parameters', make: makeParameters},
  {name: 'population', title: 'Population', make: makePopulation},
  {name: 'slots', title: 'Slots', make: makeSlots},
];

class Page implements Desk {
  runs: Facts[] = [];
  run!: Run;
  filter = '';
  private readonly known = new Map<string, Run>();
  private view!: View;
  private shown = '';
  private dialog = false;
  private openings = 0;
  private readonly tabs = new Map<string, HTMLElement>();
  private readonly header = make('header', document.body);
  private readonly picker = make('span', this.header);
  private readonly says = make('span', this.header, '', {role: 'status', class: 'says'});
  private readonly nav = make('nav', document.body, '', {role: 'tablist', 'aria-label': 'Views'});
  private readonly problem = make('p', document.body, '', {class: 'warning', role: 'alert', hidden: true});
  private readonly main = make('main', document.body);

  async start(): Promise<void> {
    const asked = address();
    let problem = await this.find(asked.run).catch(String);
    while (!this.run) {
      this.tell(problem);
      do await new Promise((done) => setTimeout(done, EVERY));
      while (hidden());
      problem = await this.find(asked.run).catch(String);
    }
    for (const {name, title} of VIEWS) this.makeTab(name, title);
    this.show(VIEWS.some(({name}) => name === asked.view) ? asked.view : this.runs.length > 1 && !asked.run ? 'runs' : 'overview');
    if (problem) this.tell(problem);
    else if (asked.trial) this.openTrial(Number(asked.trial));
    new ResizeObserver(() => this.draw()).observe(this.main);
    onDark((dark) => {
      document.documentElement.classList.toggle('dark', dark);
      this.draw();
    });
    onReload(() => void this.update(true));
    setInterval(() => void this.update(false), EVERY);
  }

  /** Look at the run that is wanted, else at the newest one that can be read; return why it is another, or none. */
  private async find(name = ''): Promise<string> {
    await this.readRuns();
    const wanted = this.runs.filter((facts) => facts.name === name);
    let problem = name && !wanted.length ? `There is no run ${name} in this folder.` : '';
    for (const facts of new Set([...wanted, ...this.runs.filter((one) => !one.error)])) {
      try {
        this.run = await this.read(facts.name);
        return problem;
      } catch (error) {
        problem ||= String(error); // of the run that was wanted; the others can be looked at
      }
    }
    return problem || (this.runs[0]?.error ?? 'There is no run in this folder.');
  }

  async read(name: string): Promise<Run> {
    let run = this.known.get(name);
    if (!run) {
      run = new Run(name);
      await run.update();
      run = this.known.get(name) ?? run; // it may have been asked for twice
      this.known.set(name, run);
    }
    return run;
  }

  openRun(name: string): void {
    const mine = ++this.openings;
    this.read(name).then((run) => {
      if (mine !== this.openings) return; // another run was opened meanwhile
      this.run = run;
      this.show(this.shown === 'runs' ? 'overview' : this.shown);
    }, (error) => {
      if (mine !== this.openings) return;
      this.draw(); // the menu names the run that is still shown
      this.tell(String(error));
    });
  }

  /** Say why a run cannot be shown, until another view is. */
  private tell(problem: string): void {
    if (this.problem.textContent !== problem) this.problem.textContent = problem; // else it is read aloud again
    this.problem.hidden = false;
  }

  readonly openTrial = (trial: number): void => {
    if (this.dialog || !Number.isInteger(trial)) return;
    this.dialog = true;
    this.remember(trial);
    openTrial(this.run.name, trial, () => {
      this.dialog = false;
      this.remember();
    });
  };

  openTrials(filter: string): void {
    this.filter = filter;
    this.show('trials');
  }

  private makeTab(name: string, title: string): void {
    const tab = make('button', this.nav, title, {type: 'button', role: 'tab', id: `tab-${name}`});
    tab.onclick = () => this.show(name);
    tab.onkeydown = (event) => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      if (!step) return;
      const names = [...this.tabs.keys()];
      const next = names[(names.indexOf(name) + step + names.length) % names.length];
      this.show(next);
      this.tabs.get(next)!.focus();
    };
    this.tabs.set(name, tab);
  }

  private show(name: string): void {
    this.shown = name;
    this.problem.hidden = true;
    for (const [other, tab] of this.tabs) {
      tab.setAttribute('aria-selected', String(other === name));
      tab.tabIndex = other === name ? 0 : -1;
    }
    this.main.replaceChildren();
    const panel = make('div', this.main, '', {class: 'panel', role: 'tabpanel', 'aria-labelledby': `tab-${name}`});
    this.view = VIEWS.find((kind) => kind.name === name)!.make(panel, this);
    this.remember();
    this.draw();
  }

  private remember(trial?: number): void {
    setTitle(`${this.run.name} · TensorBoard`);
    setAddress({run: this.run.name, view: this.shown, trial: trial === undefined ? '' : String(trial)});
  }

  /** Read the list of runs; return whether it has changed. */
  private async readRuns(): Promise<boolean> {
    const before = JSON.stringify(this.runs);
    this.runs = (await getRuns()).sort((a, b) => (b.created ?? 0) - (a.created ?? 0));
    return JSON.stringify(this.runs) !== before;
  }

  private drawHeader(): void {
    const {facts} = this.run;
    const names = this.runs.filter((one) => !one.error).map((one) => one.name);
    choice(this.picker, 'Run', names.map((name) => [name, name] as const), this.run.name, (name) => this.openRun(name));
    const best = facts.best ? `, best ${facts.objective ?? 'value'} ${number(facts.best.value)} in trial ${facts.best.trial}` : '';
    const text = `${facts.counts.done} of ${facts.total} trials, ${stateText(facts.state)}${best}`;
    if (this.says.textContent !== text) this.says.textContent = text;
    document.body.dataset.filled = String(this.run.trials.size);
  }

  private draw(): void {
    if (hidden() || !this.view) return;
    keepingFocus(() => {
      this.drawHeader();
      this.view.draw();
    });
  }

  /** Ask for what is new in the runs that are shown. */
  private async update(asked: boolean): Promise<void> {
    if (hidden()) return;
    let [changed, problem] = [false, ''];
    const take = async (answer: Promise<boolean>) => {
      try {
        changed = (await answer) || changed;
      } catch (error) {
        problem ||= String(error); // other runs may be read, and this one at the next question
      }
    };
    if (this.shown === 'runs' || asked) await take(this.readRuns());
    for (const name of new Set([this.run.name, ...(this.view.shows?.() ?? [])])) {
      const run = this.known.get(name); // none while its first answer is awaited
      if (run) await take(run.update());
    }
    const before = document.body.classList.contains('lost');
    document.body.classList.toggle('lost', problem !== '');
    if (changed || (before && !problem)) this.draw(); // also in place of the words about a problem
    if (problem) this.says.textContent = problem;
  }
}

export async function render(): Promise<void> {
  make('style', document.head, uplotStyle + ownStyle);
  document.documentElement.lang = 'en';
  await new Page().start();
}
