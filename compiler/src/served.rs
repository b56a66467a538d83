//! Training with parameter servers, from Rust: what `tfc launch --ps` does with
//! processes, with modules that live anywhere.
//!
//! ```no_run
//! use tfc::net::job::Job;
//! use tfc::net::ps::server::Rule;
//! # fn main() -> Result<(), tfc::Error> {
//! # let graph = tfc::load("mlp.graph")?;
//! # let (x, y) = (ndarray::Array2::<f32>::zeros((4, 784)), ndarray::Array1::<i32>::zeros(4));
//! # let is_server = false;
//! let module = tfc::compile_with(&graph, &tfc::Options::new().replicas(true))?;
//! let mut job = Job::new(0, 2, "");
//! job.servers = vec!["127.0.0.1:7000".into()];
//! if is_server {
//!     module.serve_variables("train", &job, Rule::Together { need: 2 }, &|| false)?;
//! } else {
//!     let mut worker = module.worker("train", &job)?;
//!     while worker.next_step() < 100 {
//!         worker.step((&x, &y), 0.5)?;
//!     }
//!     worker.finish()?;
//! }
//! # Ok(())
//! # }
//! ```

use crate::error::Result;
use crate::module::Module;
use crate::value::{Feeds, Outputs};
use std::sync::Arc;
use tfc_runtime::checkpoint::{DEFAULT_KEEP, Save};
use tfc_runtime::net::job::Job;
use tfc_runtime::net::ps::carry::{Beginning, Origin};
use tfc_runtime::net::ps::client::{Client, Counts, Stepped};
use tfc_runtime::net::ps::server::{Rule, Server};

/// A worker of a job with parameter servers.
pub struct Worker {
    module: Module,
    client: Client,
    job: Job,
    next: u64,
    begun: bool,
}

impl Module {
    /// Keeps variables of an entry that learns, as parameter server number `job.rank`,
    /// until the chief is done or `stop` says so.
    pub fn serve_variables(
        &self,
        entry: &str,
        job: &Job,
        rule: Rule,
        stop: &dyn Fn() -> bool,
    ) -> Result<()> {
        let index = self.model.entry(entry)?;
        let server = Server::new(self.model.clone(), index, job, rule)?;
        Ok(Arc::new(server).serve(job, stop)?)
    }

    /// Joins a job as worker number `job.rank`. Worker 0, the chief, brings the
    /// variables of its module to servers that have none; the others get them.
    pub fn worker(&self, entry: &str, job: &Job) -> Result<Worker> {
        let index = self.model.entry(entry)?;
        let client = Client::new(&self.model, index, job, Some(job.rank))?;
        if self.model.is_bare() {
            for v in client.layout().own() {
                self.model.start(v as usize)?;
            }
        }
        let mut worker =
            Worker { module: self.clone(), client, job: job.clone(), next: 0, begun: false };
        worker.sync()?;
        Ok(worker)
    }
}

impl Worker {
    fn sync(&mut self) -> Result<()> {
        // Without checkpoints, what the chief's module has is what there is.
        let step = if self.begun { self.next } else { 0 };
        let bare = self.module.model.is_bare();
        let mut give = || {
            let from = if bare { Origin::First } else { Origin::Model };
            Ok(Beginning { step, from, positions: vec![] })
        };
        let chief = self.job.rank == 0;
        let give: Option<&mut dyn FnMut() -> tfc_runtime::Result<Beginning>> =
            if chief { Some(&mut give) } else { None };
        let wait = self.job.join_timeout.max(self.job.timeout);
        self.next = self.client.sync(&self.module.model, give, wait)?;
        self.begun = true;
        Ok(())
    }

    /// The step that is due.
    pub fn next_step(&self) -> u64 {
        self.next
    }

    /// Computes the gradients of some examples, which are `share` of those of the step,
    /// and has them applied. The entry's own results; none if a server was lost
    /// meanwhile, and the step is to be done again.
    pub fn step<'a>(&mut self, feeds: impl Feeds<'a>, share: f64) -> Result<Option<Outputs>> {
        let Some((own, all)) = self.module.call_part(&mut self.client, feeds)? else {
            self.sync()?;
            return Ok(None);
        };
        match self.client.step(&self.module.model, self.next, share, &all)? {
            Stepped::Done { next, .. } => {
                self.next = next;
                Ok(Some(own))
            }
            Stepped::Lost => {
                self.sync()?;
                Ok(None)
            }
        }
    }

    /// Brings all variables of the servers into the module, to be saved or looked at.
    pub fn pull(&mut self) -> Result<()> {
        let all: Vec<u32> = self.client.layout().served().into_iter().collect();
        Ok(self.client.take(&self.module.model, &all, true)?)
    }

    /// Whether every step shall compute with the variables as they are when it begins, on
    /// all servers at one moment: it sees every update that was acknowledged before, and
    /// none in part.
    pub fn set_strong(&mut self, strong: bool) {
        self.client.strong = strong;
    }

    /// Has the servers save their variables, each to a file of its own in
    /// `job.checkpoints`, as they are at one moment: one checkpoint, which any number of
    /// servers or a single process can go on from.
    pub fn save(&mut self) -> Result<()> {
        let step = self.next;
        self.client.save(&self.module.model, &mut |now| {
            let step = now.unwrap_or(step);
            Some(Save { step, keep: DEFAULT_KEEP, ..Save::default() })
        })?;
        Ok(())
    }

    /// The bytes that this worker's steps have sent and taken so far.
    pub fn traffic(&self) -> [u64; 2] {
        self.client.traffic
    }

    /// What the servers have counted.
    pub fn counts(&mut self) -> Result<Counts> {
        Ok(self.client.status()?)
    }

    /// This worker is done. The chief waits for the others, takes the variables unless
    /// its module is bare ([`crate::Options::bare`]), and lets the servers go.
    pub fn finish(mut self) -> Result<()> {
        self.client.leave()?;
        if self.job.rank > 0 {
            return Ok(());
        }
        let until = std::time::Instant::now() + self.job.timeout;
        while !self.client.status()?.working.is_empty() && std::time::Instant::now() < until {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if !self.module.model.is_bare() {
            self.pull()?;
        }
        Ok(self.client.shutdown()?)
    }
}
