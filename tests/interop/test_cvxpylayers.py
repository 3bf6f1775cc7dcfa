"""The solver for cvxpylayers: values, duals and gradients by hand, against HiGHS, finite differences, diffcp and Moreau."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from taskloss.interop import cvxpylayers as ours
from taskloss.interop.cvxpylayers import LinearProgramError, TasklossSolver
from taskloss.lp import LPLayer

_MISSING = "cvxpylayers 1.2 is not installed: pip install 'taskloss[peers]'"
pytest.importorskip("cvxpylayers.interfaces.base", reason=_MISSING)
cp = pytest.importorskip("cvxpy", reason=_MISSING)
diffcp = pytest.importorskip("diffcp", reason=_MISSING)
CvxpyLayer = pytest.importorskip("cvxpylayers.torch", reason=_MISSING).CvxpyLayer

SCS = {"eps": 1e-11, "max_iters": 100_000}


class General:
    """``min c'x`` subject to ``A x <= b``, ``E x = d``, ``2 x >= low``, ``x <= high``: every number is a parameter.

    Moreau is given ``2 x >= low``: cvxpylayers 1.2.0 hands it problems in which cvxpy 1.9.3 has taken ``x >= 0`` out of the rows,
    and forgets these constraints.
    """

    def __init__(self) -> None:
        self.x = cp.Variable(4, name="x")
        self.parameters = [cp.Parameter(shape) for shape in ((4,), (3, 4), (3,), (1, 4), (1,), (4,), (4,))]
        c, A, b, E, d, low, high = self.parameters
        self.constraints = [A @ self.x <= b, E @ self.x == d, 2 * self.x >= low, self.x <= high]
        self.problem = cp.Problem(cp.Minimize(c @ self.x), self.constraints)
        self.duals = [constraint.dual_variables[0] for constraint in self.constraints]

    def layer(self, solver, *, duals: bool = False) -> CvxpyLayer:
        return CvxpyLayer(self.problem, self.parameters, [self.x, *(self.duals if duals else [])], solver=solver)

    @staticmethod
    def data(*batch: int, seed: int = 0) -> list[torch.Tensor]:
        """Return a feasible and bounded program, or a batch of them."""
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*batch, *shape, generator=generator, dtype=torch.float64)

        def slack(*shape: int) -> torch.Tensor:
            return 0.2 + torch.rand(*batch, *shape, generator=generator, dtype=torch.float64)

        x, A, E = normal(4), normal(3, 4), normal(1, 4)
        b, d = (A @ x[..., None])[..., 0] + slack(3), (E @ x[..., None])[..., 0]
        return [normal(4), A, b, E, d, 2.0 * (x - slack(4)), x + slack(4)]


def gradients(layer: CvxpyLayer, data: list[torch.Tensor], options: dict | None = None) -> list[torch.Tensor]:
    """Return the gradients of a random linear function of all that the layer returns."""
    leaves = [value.clone().requires_grad_() for value in data]
    outputs = layer(*leaves, solver_args=options or {})
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(output.shape, generator=generator, dtype=torch.float64) for output in outputs]
    sum((weight * output).sum() for weight, output in zip(weights, outputs, strict=True)).backward()
    return [leaf.grad for leaf in leaves]


def test_by_hand():
    x, c, b = cp.Variable(2), cp.Parameter(2), cp.Parameter()
    total = cp.sum(x) == b
    positive = x >= 0
    problem = cp.Problem(cp.Minimize(c @ x + 7), [total, positive])
    variables = [x, total.dual_variables[0], positive.dual_variables[0]]
    layer = CvxpyLayer(problem, [c, b], variables, solver=TasklossSolver())
    costs = torch.tensor([1.0, 3.0], dtype=torch.float64, requires_grad=True)
    amount = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    plan, price, reduced = layer(costs, amount)
    # All goes to the cheap one; its price is -1 with the sign of cvxpy; the other one is 2 too dear.
    assert plan.tolist() == [2.0, 0.0]
    assert price.item() == pytest.approx(-1.0)
    assert reduced.tolist() == pytest.approx([0.0, 2.0])
    (plan[0] + 10.0 * price + 100.0 * reduced[1]).backward()
    # plan_0 = b, price = -c_0, reduced_1 = c_1 - c_0.
    assert amount.grad.item() == pytest.approx(1.0)
    assert costs.grad.tolist() == pytest.approx([-110.0, 100.0])


@pytest.mark.parametrize("seed", range(3))
def test_values_and_duals_against_highs(seed):
    case = General()
    data = case.data(3, seed=seed)
    x, *duals = case.layer(TasklossSolver(), duals=True)(*data)
    for item in range(3):
        for parameter, value in zip(case.parameters, data, strict=True):
            parameter.value = value[item].numpy()
        case.problem.solve(solver=cp.HIGHS)
        np.testing.assert_allclose(x[item], case.x.value, atol=1e-7)
        for dual, constraint in zip(duals, case.constraints, strict=True):
            np.testing.assert_allclose(dual[item], constraint.dual_value, atol=1e-7)


def test_gradients_against_finite_differences():
    layer = General().layer(TasklossSolver(), duals=True)
    data = [value.requires_grad_() for value in General.data(seed=3)]
    assert torch.autograd.gradcheck(layer, data, atol=1e-5)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.parametrize("seed", range(3))
def test_gradients_against_diffcp(seed):
    data = General.data(2, seed=seed)
    mine = gradients(General().layer(TasklossSolver(), duals=True), data)
    theirs = gradients(General().layer(None, duals=True), data, SCS)
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_gradients_against_moreau():
    pytest.importorskip("moreau", reason="Moreau is not installed: pip install 'taskloss[peers]'")
    data = General.data(2, seed=5)
    mine, theirs = (gradients(General().layer(solver), data) for solver in (TasklossSolver(), "MOREAU"))
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_a_batch_is_its_items_and_shared_parameters_are_broadcast():
    layer, data = General().layer(TasklossSolver(), duals=True), General.data(3, seed=7)
    # Feasible for all three.
    data[5] = data[5].min(0).values
    shared = [value.expand(3, 4) if number == 5 else value for number, value in enumerate(data)]
    costs = data[0].clone().requires_grad_()
    low = data[5].clone().requires_grad_()
    answers = layer(costs, *data[1:5], low, data[6])
    sum(answer.sum() for answer in answers).backward()
    total = torch.zeros_like(low)
    for item in range(3):
        one = [value[item].clone().requires_grad_() for value in shared]
        single = layer(*one)
        sum(answer.sum() for answer in single).backward()
        for answer, alone in zip(answers, single, strict=True):
            np.testing.assert_allclose(answer[item].detach(), alone.detach(), atol=1e-9)
        np.testing.assert_allclose(costs.grad[item], one[0].grad, atol=1e-9)
        total += one[5].grad
    np.testing.assert_allclose(low.grad, total, atol=1e-9)


def test_piecewise_linear_functions_are_linear_programs():
    x, t = cp.Variable(3), cp.Variable(nonneg=True)
    A, b = cp.Parameter((6, 3)), cp.Parameter(6)
    problem = cp.Problem(cp.Minimize(cp.norm1(A @ x - b) + 2 * cp.max(cp.abs(x)) + t), [x[0] + t >= 1, cp.norm_inf(x) <= 2])
    generator = torch.Generator().manual_seed(0)
    A.value, b.value = (torch.randn(shape, generator=generator, dtype=torch.float64).numpy() for shape in ((6, 3), (6,)))
    given = [torch.as_tensor(A.value).requires_grad_(), torch.as_tensor(b.value).requires_grad_()]
    layer = CvxpyLayer(problem, [A, b], [x, t], solver=TasklossSolver())
    best_x, best_t = layer(*given)
    problem.solve(solver=cp.HIGHS)
    np.testing.assert_allclose(best_x.detach(), x.value, atol=1e-7)
    np.testing.assert_allclose(best_t.detach(), t.value, atol=1e-7)
    assert torch.autograd.gradcheck(lambda *data: layer(*data)[0], given, atol=1e-5)


def test_matrix_variables_and_parameters_keep_their_shapes():
    x, cost = cp.Variable((2, 3)), cp.Parameter((2, 3))
    supply = cp.sum(x, axis=1) == np.array([2.0, 1.0])
    problem = cp.Problem(cp.Minimize(cp.sum(cp.multiply(cost, x))), [supply, cp.sum(x, axis=0) == 1.0, x >= 0.0])
    layer = CvxpyLayer(problem, [cost], [x, supply.dual_variables[0]], solver=TasklossSolver())
    plan, prices = layer(torch.tensor([[1.0, 5.0, 2.0], [3.0, 1.0, 4.0]]).double())
    assert plan.tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    assert prices.shape == (2,)


@pytest.mark.filterwarnings("ignore:the parameters of this layer are costs alone")
def test_smoothed_gradients_move_with_the_costs():
    x, c = cp.Variable(3), cp.Parameter(3)
    problem = cp.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1.0, x >= 0.0])
    options = {"epsilon": 1e-2, "ridge": 0.5}
    layer = CvxpyLayer(problem, [c], [x], solver=TasklossSolver("smoothed", **options))
    costs = torch.tensor([[1.0, 1.2, 1.3], [0.4, 0.1, 0.3]], dtype=torch.float64, requires_grad=True)
    (plan,) = layer(costs)
    program = {"A_eq": torch.ones(1, 3).double(), "b_eq": torch.ones(1).double(), "lower": 0.0}
    np.testing.assert_allclose(plan.detach(), LPLayer("smoothed", **options)(costs, **program).x.detach(), atol=1e-10)
    assert torch.autograd.gradcheck(layer, costs, atol=1e-5)
    # An option of one call.
    np.testing.assert_allclose(layer(costs, solver_args={"gradient": "active_set"})[0].detach(), np.eye(3)[[0, 1]], atol=1e-12)


def test_costs_alone_get_a_warning_and_no_gradient():
    x, c, b = cp.Variable(3), cp.Parameter(3), cp.Parameter()
    costs = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    layer = CvxpyLayer(cp.Problem(cp.Minimize(c @ x), [cp.sum(x) == 1.0, x >= 0.0]), [c], [x], solver=TasklossSolver())
    with pytest.warns(UserWarning, match="gradient is zero.*gradient='smoothed'"):
        (plan,) = layer(costs)
    plan[0].backward()
    assert costs.grad.tolist() == [0.0, 0.0, 0.0]
    layer_of_both = CvxpyLayer(cp.Problem(cp.Minimize(c @ x), [cp.sum(x) == b, x >= 0.0]), [c, b], [x], solver=TasklossSolver())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(costs)  # The second time.
        layer_of_both(costs, torch.ones((), dtype=torch.float64))[0].sum().backward()


def test_single_precision_no_gradient_and_a_second_backward_pass():
    layer, data = General().layer(TasklossSolver()), General.data(2, seed=9)
    (exact,) = layer(*data)
    assert not exact.requires_grad
    leaves = [value.float().requires_grad_() for value in data]
    (x,) = layer(*leaves)
    np.testing.assert_allclose(x.detach(), exact, atol=1e-4)
    x.sum().backward(retain_graph=True)
    first = leaves[2].grad.clone()
    x.sum().backward()
    assert first.dtype == torch.float32
    assert torch.equal(leaves[2].grad, 2.0 * first)


def test_infeasible_with_a_proof():
    x, limit = cp.Variable(2, name="x"), cp.Parameter(name="limit")
    apart = cp.abs(x[0] - 1.0) <= 1.0  # It has no part in the contradiction.
    problem = cp.Problem(cp.Minimize(cp.sum(x)), [apart, cp.sum(x) == 4.0, x <= limit])
    layer = CvxpyLayer(problem, [limit], [x], solver=TasklossSolver())
    with pytest.raises(LinearProgramError, match=r"program 1 of 2 is infeasible.*contradict each other: .*x <= limit") as caught:
        layer(torch.tensor([3.0, 1.5]).double())
    error = caught.value
    assert isinstance(error, ValueError)
    assert isinstance(error, diffcp.SolverError)
    assert (error.item, error.status.name, len(error.names)) == (1, "INFEASIBLE", 2)
    # Farkas: F'y = 0, y >= 0 for the inequalities and g'y < 0.
    data = problem.get_problem_data("SCS")[0]
    *_, matrix, offset = data["param_prob"].apply_parameters({limit.id: np.array(1.5)})
    y = error.certificate.numpy()
    np.testing.assert_allclose(matrix.T @ y, 0.0, atol=1e-9)
    assert (y[1:] >= 0.0).all()
    assert offset @ y < 0.0


def test_unbounded_with_a_direction():
    x, y, limit = cp.Variable(name="x"), cp.Variable(2, name="y"), cp.Parameter()
    problem = cp.Problem(cp.Minimize(cp.sum(y) - x), [x <= limit, y[0] == 0.0])
    layer = CvxpyLayer(problem, [limit], [x], solver=TasklossSolver())
    with pytest.raises(LinearProgramError, match=r"program 0 of 1 is unbounded.*variables of the direction: y$") as caught:
        layer(torch.tensor(1.0).double())
    direction = caught.value.certificate.numpy()
    np.testing.assert_allclose(np.sort(direction / np.abs(direction).max()), [-1.0, 0.0, 0.0], atol=1e-9)


def test_bounds_that_cross():
    x, low, high = cp.Variable(), cp.Parameter(), cp.Parameter()
    layer = CvxpyLayer(cp.Problem(cp.Minimize(x), [x >= low, x <= high]), [low, high], [x], solver=TasklossSolver())
    assert layer(torch.tensor(1.0), torch.tensor(2.0))[0].item() == 1.0
    with pytest.raises(LinearProgramError, match="is infeasible") as caught:
        layer(torch.tensor(2.0), torch.tensor(1.0))
    assert caught.value.certificate.tolist() == pytest.approx([1.0, 1.0])
    assert len(caught.value.names) == 2


@pytest.mark.parametrize(
    ("reason", "problem"),
    [
        ("objective is quadratic", lambda x, c: cp.Problem(cp.Minimize(cp.sum_squares(x) + c @ x))),
        ("second-order cones", lambda x, c: cp.Problem(cp.Minimize(c @ x), [cp.norm(x) <= 1.0])),
        ("exponential cones", lambda x, c: cp.Problem(cp.Minimize(c @ x), [cp.exp(x) <= 1.0])),
        ("semidefinite cones", lambda x, c: cp.Problem(cp.Minimize(c @ x), [cp.diag(x) >> 0.0])),
        ("power cones", lambda x, c: cp.Problem(cp.Minimize(c @ x), [cp.PowCone3D(x[0], x[1], 1.0, 0.3)])),
    ],
)
def test_other_problems_are_refused(reason, problem):
    x, c = cp.Variable(2), cp.Parameter(2)
    with pytest.raises(ValueError, match=f"{reason}.*solves linear programs: give this problem another solver"):
        CvxpyLayer(problem(x, c), [c], [x], solver=TasklossSolver())


def test_wrong_use():
    with pytest.raises(TypeError, match="unknown option 'eps' of TasklossSolver; expected gradient, epsilon"):
        TasklossSolver(eps=1e-8)
    with pytest.raises(ValueError, match="gradient='value' is not known"):
        TasklossSolver("value")
    with pytest.raises(ValueError, match="serves no layer yet"):
        TasklossSolver().solve_torch_batch(None, torch.ones(1, 2), torch.ones(1, 1), None, {}, False)
    solver = TasklossSolver()
    layer = General().layer(solver)
    with pytest.raises(ValueError, match="already serves a layer"):
        General().layer(solver)
    with pytest.raises(TypeError, match="unknown option 'max_iters'"):
        layer(*General.data(), solver_args={"max_iters": 10})


def test_without_cvxpylayers(monkeypatch):
    monkeypatch.setattr(ours, "_SolverInterface", object)
    with pytest.raises(ImportError, match=r"pip install 'taskloss\[peers\]'"):
        TasklossSolver()
