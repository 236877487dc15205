// The search of the site runs in a worker, which browsers refuse to pages that are opened from the file system. There
// a hidden frame takes the worker's place: it runs the same script, and messages are handed over by hand.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inside = frame.contentWindow;
      this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.inside.importScripts = (...addresses) =>
        addresses.reduce((before, next) => before.then(() => this.run(next)), Promise.resolve());
      this.run(address).then(() => {
        for (const data of this.waiting) this.tell(data);
        this.waiting = null;
      });
    }

    run(address) {
      return new Promise((done, failed) => {
        const script = this.inside.document.createElement("script");
        script.src = address;
        script.onload = done;
        script.onerror = failed;
        this.inside.document.body.append(script);
      });
    }

    tell(data) {
      this.inside.dispatchEvent(new MessageEvent("message", { data }));
    }

    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.tell(data);
    }
  };
  window.Worker = window.IFrameWorker;
}
