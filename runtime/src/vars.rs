//! The variables of a model, as others see them: read, written, lent, forgotten.

use crate::error::{Error, Result};
use crate::model::Model;
use crate::tensor::{FeedView, TensorBuf};

impl Model {
    /// Index of the variable of this name.
    pub fn var(&self, name: &str) -> Option<usize> {
        self.plan.vars.iter().position(|v| v.name == name)
    }

    /// A copy of a variable.
    pub fn read_var(&self, var: usize) -> Result<TensorBuf> {
        self.check_var(var)?;
        if self.is_elsewhere(var) {
            self.gather([var])?;
        }
        self.state.read(&self.plan.vars, var)
    }

    /// Overwrites a variable.
    pub fn write_var(&self, var: usize, value: FeedView<'_>) -> Result<()> {
        self.check_var(var)?;
        self.state.write(&self.plan.vars, var, value)?;
        self.var_was_set(var)
    }

    /// Overwrites several variables at once: every call sees all of them old or
    /// all of them new. Nothing changes unless all values fit.
    pub fn write_vars(&self, values: Vec<(usize, TensorBuf)>) -> Result<()> {
        values.iter().try_for_each(|(var, _)| self.check_var(*var))?;
        let vars: Vec<usize> = values.iter().map(|(var, _)| *var).collect();
        self.state.replace(&self.plan.vars, values)?;
        vars.into_iter().try_for_each(|var| self.var_was_set(var))
    }

    /// Overwrites some rows of a variable, which stand in `data` one after the other.
    pub fn write_rows(&self, var: usize, rows: &[usize], data: &[u8]) -> Result<()> {
        self.check_var(var)?;
        self.state.write_rows(var, rows, data)?;
        self.var_was_set(var)
    }

    /// Lends all variables, with their names: as they are between two calls.
    pub fn with_vars<T>(
        &self,
        use_them: impl FnOnce(&[(&str, FeedView<'_>)]) -> Result<T>,
    ) -> Result<T> {
        let all: Vec<u32> = (0..self.plan.vars.len() as u32).collect();
        self.with_some(&all, use_them)
    }

    /// As [`Model::with_vars`], of some of them, in ascending order.
    fn with_some<T>(
        &self,
        vars: &[u32],
        use_them: impl FnOnce(&[(&str, FeedView<'_>)]) -> Result<T>,
    ) -> Result<T> {
        vars.iter().try_for_each(|v| self.check_var(*v as usize))?;
        let _held = self.state.hold_plain(vars, &[]);
        // What is elsewhere is copied here first.
        let contents = vars.iter().map(|v| self.state.contents(*v as usize));
        let contents = contents.collect::<Result<Vec<_>>>()?;
        // The views are gone before the variables are given back.
        let views: Vec<_> = (vars.iter().zip(&contents))
            .map(|(v, data)| {
                let info = &self.plan.vars[*v as usize];
                let shape = self.state.shape(*v as usize);
                (info.name.as_str(), FeedView { dtype: info.dtype, shape, data })
            })
            .collect();
        use_them(&views)
    }

    /// As [`Model::with_vars`], to save them: an error if one of them is not finite
    /// (see [`Model::allow_nan`]).
    pub fn with_vars_to_save<T>(
        &self,
        save: impl FnOnce(&[(&str, FeedView<'_>)]) -> Result<T>,
    ) -> Result<T> {
        let all: Vec<u32> = (0..self.plan.vars.len() as u32).collect();
        self.with_some_to_save(&all, save)
    }

    /// As [`Model::with_vars_to_save`], of some of them, in ascending order.
    pub fn with_some_to_save<T>(
        &self,
        vars: &[u32],
        save: impl FnOnce(&[(&str, FeedView<'_>)]) -> Result<T>,
    ) -> Result<T> {
        self.gather(vars.iter().map(|v| *v as usize))?;
        self.with_some(vars, |views| match self.state.unfit(&self.plan.vars, vars, views) {
            Some(e) if !self.allows_nan() => Err(e),
            _ => save(views),
        })
    }

    fn check_var(&self, var: usize) -> Result<()> {
        if var < self.plan.vars.len() {
            return Ok(());
        }
        Err(Error::data("E0605", format!("there is no variable number {var}")))
    }

    /// Gives one variable of a program that was loaded bare its initial value. Others that
    /// it is computed from may get theirs, too.
    pub fn start(&self, var: usize) -> Result<()> {
        self.check_var(var)?;
        match self.starts.get(var) {
            Some(Some(entry)) => self.run(*entry, &[], &mut []),
            Some(None) => self.state.forget(var),
            None => Err(Error::bug("the program was not loaded bare")),
        }
    }

    /// Whether its variables are address space until they are used.
    pub fn is_bare(&self) -> bool {
        !self.starts.is_empty()
    }

    /// Forgets the value of a variable: it is zero, and its memory free if the program was
    /// loaded bare.
    pub fn forget(&self, var: usize) -> Result<()> {
        self.check_var(var)?;
        self.state.forget(var)
    }

    /// Lends the value of a variable of this process.
    pub fn with_var<T>(&self, var: usize, use_it: impl FnOnce(&[u8]) -> T) -> Result<T> {
        self.check_var(var)?;
        self.state.with(var, use_it)
    }
}
