import { render } from 'preact';
import { Connection } from './live/connection';
import { App } from './view/app';

const connection = new Connection();
render(<App connection={connection} />, document.getElementById('app')!);
connection.start();
