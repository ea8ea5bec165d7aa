// Pages opened from disk may start no worker, which the search of this site runs in: there, a hidden frame does its work.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.title = "Search";
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      addEventListener("message", (event) => {
        if (event.source !== inside) return;
        const said = new MessageEvent("message", { data: event.data });
        this.dispatchEvent(said);
        this.onmessage?.(said);
      });
      const page = inside.document;
      page.open();
      page.write("<!doctype html><title>Search</title><body></body>");
      page.close();
      const load = (address) =>
        new Promise((done, failed) => {
          const script = page.createElement("script");
          script.src = address;
          script.onload = done;
          script.onerror = failed;
          page.body.append(script);
        });
      // what the script inside takes for its worker's own functions
      const own = page.createElement("script");
      own.textContent =
        "var toParent = parent; var postMessage = function (data) { toParent.postMessage(data, '*'); };";
      page.body.append(own);
      inside.importScripts = async (...addresses) => {
        for (const address of addresses) await load(address);
      };
      load(String(url)).then(() => {
        for (const data of this.waiting) this.send(data);
        this.waiting = null;
      });
    }

    // the frame's own postMessage now speaks to us, so it is told by an event
    send(data) {
      const inside = this.frame.contentWindow;
      inside.dispatchEvent(new inside.MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.send(data);
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
