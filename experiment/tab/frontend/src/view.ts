// What all views share.
import type {Facts} from './api';
import type {Run} from './model';

/** What a view may use and ask for. */
export interface Desk {
  /** All runs of the folder, the newest first. */
  runs: Facts[];
  /** The run that is looked at; it has been read. */
  run: Run;
  /** Return a run that is read and kept up to date while its view is shown. */
  read(name: string): Promise<Run>;
  openRun(name: string): void;
  /** A function of its own, not a method: charts get it without the desk. */
  readonly openTrial: (trial: number) => void;
  /** Show the trials that match a filter. */
  openTrials(filter: string): void;
  /** The filter of the trials, as it was typed. */
  filter: string;
}

export interface View {
  /** Draw again: the data, the size or the colours have changed. */
  draw(): void;
  /** Names of the runs that the view shows, if not only the one that is looked at. */
  shows?(): string[];
}

export interface ViewKind {
  name: string;
  title: string;
  make(box: HTMLElement, desk: Desk): View;
}
