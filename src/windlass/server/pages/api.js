/** The API client of the pages. It sends the session cookie. */

import { Windlass } from "./client/windlass.js";

export const api = new Windlass({ url: document.baseURI.replace(/\/+$/, "") });
